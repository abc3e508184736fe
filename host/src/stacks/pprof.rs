//! Profiles in pprof's format: `profile.proto`, compressed.
//!
//! Source: github.com/google/pprof, `proto/profile.proto`; names and numbers of the messages are from there.

use std::collections::BTreeMap;
use std::hash::Hash;
use std::io::{self, Write as _};

use flate2::Compression;
use flate2::write::GzEncoder;
use prost::Message as _;

use super::{FrameKind, Profile, Sample, StackFrame, Task};

/// Encodes a profile: samples of one type, named after the map, with the labels `command`, `pid`, `tid`,
/// `cpu` and `cgroup` as far as they are known.
///
/// # Errors
/// If compression fails.
pub fn pprof(profile: &Profile) -> io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(&message(profile).encode_to_vec())?;
    encoder.finish()
}

fn message(profile: &Profile) -> proto::Profile {
    let mut tables = Tables::default();
    // The format requires the first string to be empty.
    tables.text("");
    let sample_type = proto::ValueType { r#type: tables.text(&profile.map), unit: tables.text("count") };
    let sample = profile.samples.iter().map(|sample| tables.sample(sample)).collect();
    proto::Profile {
        sample_type: vec![sample_type],
        sample,
        mapping: tables.mappings.in_order(|name, id| proto::Mapping {
            id,
            filename: *name,
            has_functions: true,
            ..proto::Mapping::default()
        }),
        location: tables.locations.in_order(|location, id| proto::Location {
            id,
            mapping_id: location.mapping,
            address: location.address,
            line: location
                .lines
                .iter()
                .map(|&(function_id, line)| proto::Line { function_id, line })
                .collect(),
        }),
        function: tables.functions.in_order(|function, id| proto::PprofFunction {
            id,
            name: function.name,
            system_name: function.name,
            filename: function.file,
            start_line: 0,
        }),
        string_table: tables.texts.in_order(|text, _| text.clone()),
    }
}

/// The tables of a profile, in which each value occurs once and is referred to by its number.
#[derive(Default)]
struct Tables {
    texts: Numbered<String>,
    mappings: Numbered<i64>,
    functions: Numbered<PprofFunction>,
    locations: Numbered<Location>,
}

/// Values, numbered from 1 in the order of insertion.
struct Numbered<T>(BTreeMap<T, u64>);

impl<T> Default for Numbered<T> {
    fn default() -> Numbered<T> {
        Numbered(BTreeMap::new())
    }
}

#[derive(PartialEq, Eq, PartialOrd, Ord, Hash)]
struct PprofFunction {
    name: i64,
    file: i64,
}

#[derive(PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Location {
    mapping: u64,
    address: u64,
    /// Function and line, inlined ones first.
    lines: Vec<(u64, i64)>,
}

impl<T: Ord> Numbered<T> {
    fn number(&mut self, value: T) -> u64 {
        let next = self.0.len() as u64 + 1;
        *self.0.entry(value).or_insert(next)
    }

    fn in_order<U>(&self, build: impl Fn(&T, u64) -> U) -> Vec<U> {
        let mut ordered: Vec<(&T, u64)> = self.0.iter().map(|(value, number)| (value, *number)).collect();
        ordered.sort_by_key(|(_, number)| *number);
        ordered.into_iter().map(|(value, number)| build(value, number)).collect()
    }
}

impl Tables {
    fn text(&mut self, text: &str) -> i64 {
        // Numbers of strings count from 0.
        self.texts.number(text.to_owned()).cast_signed() - 1
    }

    fn sample(&mut self, sample: &Sample) -> proto::Sample {
        let mut location_id = Vec::new();
        // A location is a function together with the functions inlined into it, which are the frames after
        // it.
        let mut frames = sample.frames.as_slice();
        while let Some(first) = frames.first() {
            let inlined = frames[1..].iter().take_while(|frame| frame.kind == FrameKind::Inlined).count();
            let (one, rest) = frames.split_at(1 + inlined);
            let lines = one.iter().rev().map(|frame| self.line(frame)).collect();
            let mapping = self.mapping(first);
            // Addresses of the kernel would reveal its layout (KASLR) to every reader of the file.
            let address = if first.kind == FrameKind::Kernel { 0 } else { first.address };
            location_id.push(self.locations.number(Location { mapping, address, lines }));
            frames = rest;
        }
        location_id.reverse();
        let value = vec![i64::try_from(sample.weight).unwrap_or(i64::MAX)];
        proto::Sample { location_id, value, label: self.labels(&sample.task) }
    }

    fn line(&mut self, frame: &StackFrame) -> (u64, i64) {
        let function = PprofFunction {
            name: self.text(&frame.function),
            file: self.text(frame.file.as_deref().unwrap_or_default()),
        };
        (self.functions.number(function), frame.line.map_or(0, i64::from))
    }

    fn mapping(&mut self, frame: &StackFrame) -> u64 {
        let name = match (frame.kind, &frame.module) {
            (FrameKind::Kernel, _) => "[kernel]",
            (_, Some(module)) => module,
            _ => return 0,
        };
        let name = self.text(name);
        self.mappings.number(name)
    }

    fn labels(&mut self, task: &Task) -> Vec<proto::Label> {
        let mut labels = Vec::new();
        if let Some(command) = &task.command {
            let (key, text) = (self.text("command"), self.text(command));
            labels.push(proto::Label { key, str: text, num: 0 });
        }
        let numbers = [
            ("pid", task.process.map(i64::from)),
            ("tid", task.thread.map(i64::from)),
            ("cpu", task.cpu.map(i64::from)),
            ("cgroup", task.cgroup.map(u64::cast_signed)),
        ];
        for (name, number) in numbers {
            if let Some(num) = number {
                labels.push(proto::Label { key: self.text(name), str: 0, num });
            }
        }
        labels
    }
}

/// The messages of the format, without unused fields.
mod proto {
    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Profile {
        #[prost(message, repeated, tag = "1")]
        pub(super) sample_type: Vec<ValueType>,
        #[prost(message, repeated, tag = "2")]
        pub(super) sample: Vec<Sample>,
        #[prost(message, repeated, tag = "3")]
        pub(super) mapping: Vec<Mapping>,
        #[prost(message, repeated, tag = "4")]
        pub(super) location: Vec<Location>,
        #[prost(message, repeated, tag = "5")]
        pub(super) function: Vec<PprofFunction>,
        #[prost(string, repeated, tag = "6")]
        pub(super) string_table: Vec<String>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct ValueType {
        #[prost(int64, tag = "1")]
        pub(super) r#type: i64,
        #[prost(int64, tag = "2")]
        pub(super) unit: i64,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Sample {
        /// The innermost function first.
        #[prost(uint64, repeated, tag = "1")]
        pub(super) location_id: Vec<u64>,
        #[prost(int64, repeated, tag = "2")]
        pub(super) value: Vec<i64>,
        #[prost(message, repeated, tag = "3")]
        pub(super) label: Vec<Label>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Label {
        #[prost(int64, tag = "1")]
        pub(super) key: i64,
        #[prost(int64, tag = "2")]
        pub(super) str: i64,
        #[prost(int64, tag = "3")]
        pub(super) num: i64,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Mapping {
        #[prost(uint64, tag = "1")]
        pub(super) id: u64,
        #[prost(uint64, tag = "2")]
        pub(super) memory_start: u64,
        #[prost(uint64, tag = "3")]
        pub(super) memory_limit: u64,
        #[prost(int64, tag = "5")]
        pub(super) filename: i64,
        #[prost(bool, tag = "7")]
        pub(super) has_functions: bool,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Location {
        #[prost(uint64, tag = "1")]
        pub(super) id: u64,
        #[prost(uint64, tag = "2")]
        pub(super) mapping_id: u64,
        #[prost(uint64, tag = "3")]
        pub(super) address: u64,
        #[prost(message, repeated, tag = "4")]
        pub(super) line: Vec<Line>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Line {
        #[prost(uint64, tag = "1")]
        pub(super) function_id: u64,
        #[prost(int64, tag = "2")]
        pub(super) line: i64,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct PprofFunction {
        #[prost(uint64, tag = "1")]
        pub(super) id: u64,
        #[prost(int64, tag = "2")]
        pub(super) name: i64,
        #[prost(int64, tag = "3")]
        pub(super) system_name: i64,
        #[prost(int64, tag = "4")]
        pub(super) filename: i64,
        #[prost(int64, tag = "5")]
        pub(super) start_line: i64,
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::profile;
    use super::*;

    #[test]
    fn duplicates_are_written_once() {
        let message = message(&profile());
        assert_eq!(message.sample.len(), 3);
        assert_eq!((message.function.len(), message.location.len(), message.mapping.len()), (4, 4, 2));
        assert_eq!(message.string_table[0], "");
        let addresses: Vec<u64> = message.location.iter().map(|location| location.address).collect();
        assert_eq!(addresses, [0x1000, 0x1000, 0x1000, 0], "an address of the kernel is none");
        assert_eq!(message.sample[2].value, [5]);
        let innermost = message.sample[2].location_id[0];
        let line = &message.location[usize::try_from(innermost - 1).expect("small")].line[0];
        let function = &message.function[usize::try_from(line.function_id - 1).expect("small")];
        assert_eq!(message.string_table[usize::try_from(function.name).expect("small")], "read");
    }
}
