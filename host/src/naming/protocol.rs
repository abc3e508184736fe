//! The protocol between the host and its naming process. Both sides parse it strictly, and every length is
//! bounded. The host treats the naming process as hostile, since it has read untrusted files.
//!
//! A message is its length (u32) and that many bytes. Integers are little-endian; a text is its length (u16)
//! and its bytes. A descriptor is attached to the first byte of the length.

/// Limit of a request, in bytes.
pub(super) const MAX_REQUEST_BYTES: usize = 128 << 10;
/// Limit of an answer, in bytes.
pub(super) const MAX_ANSWER_BYTES: usize = 16 << 20;
/// Limit of the addresses in a request.
pub(crate) const MAX_LOCATIONS: usize = 8192;
/// Limit of the frames of one address: a function and the functions inlined there.
pub(super) const MAX_FRAMES: usize = 64;
/// Limit of a name or of a source file's path, in bytes.
pub(crate) const MAX_TEXT_BYTES: usize = 4096;
/// Limit of a build id, in bytes: 20 are usual, and linkers produce at most 64.
pub(super) const MAX_BUILD_ID_BYTES: usize = 64;
/// Limit of a debug file's name, in bytes.
const MAX_LINK_BYTES: usize = 255;

/// A request of the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Request {
    /// Asks for the functions at offsets in a program or library. The first request about a file carries its
    /// descriptor.
    Program {
        /// The host's id of the file.
        id: u32,
        /// The required build id; empty accepts any.
        build_id: Vec<u8>,
        /// Whether to include inlined functions and source lines from debug information.
        lines: bool,
        /// Offsets in the file, in bytes.
        offsets: Vec<u64>,
    },
    /// Answers [`Answer::Needs`]: carries the debug file's descriptor, or none if there is no such file.
    Debug { id: u32 },
    /// Asks for the functions at addresses, which ascend, in a perf map. Carries the map's descriptor.
    PerfMap { addresses: Vec<u64> },
}

/// An answer of the naming process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer {
    /// The frames of each offset or address, the outermost function first; empty if nothing is known.
    Frames(Vec<Vec<NamedFrame>>),
    /// The file has another build id than required.
    OtherFile,
    /// The file is not an ELF file, or cannot be parsed.
    NoProgram,
    /// Debug information is in another file. The host sends [`Request::Debug`], then repeats the request.
    Needs(DebugFile),
    /// The debug file was accepted.
    Taken,
}

/// A file that contains debug information of another file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DebugFile {
    /// Whether several debug files share it (`.gnu_debugaltlink`).
    pub(super) shared: bool,
    /// Its build id; empty if it is unknown.
    pub(super) build_id: Vec<u8>,
    /// Its name, without directories; empty if it is unknown.
    pub(super) name: String,
}

/// A function at an address.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct NamedFrame {
    /// The demangled name, or the symbol.
    pub(crate) function: String,
    /// Distance in bytes from the function's start to the address; None if the start is unknown.
    pub(crate) offset: Option<u64>,
    /// Path of the source file, if known.
    pub(crate) file: Option<String>,
    /// Line in the source file, if known.
    pub(crate) line: Option<u32>,
    /// Whether the function is inlined into the frame before it.
    pub(crate) inlined: bool,
}

impl Request {
    /// Encodes the message without its length.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let numbers = |bytes: &mut Vec<u8>, numbers: &[u64]| {
            bytes.extend((numbers.len() as u32).to_le_bytes());
            numbers.iter().for_each(|number| bytes.extend(number.to_le_bytes()));
        };
        match self {
            Request::Program { id, build_id, lines, offsets } => {
                bytes.push(0);
                bytes.extend(id.to_le_bytes());
                put(&mut bytes, build_id, MAX_BUILD_ID_BYTES);
                bytes.push(u8::from(*lines));
                numbers(&mut bytes, offsets);
            }
            Request::Debug { id } => {
                bytes.push(1);
                bytes.extend(id.to_le_bytes());
            }
            Request::PerfMap { addresses } => {
                bytes.push(2);
                numbers(&mut bytes, addresses);
            }
        }
        bytes
    }

    /// Parses a request; None if it is malformed.
    pub(super) fn decode(bytes: &[u8]) -> Option<Request> {
        let mut input = Input(bytes);
        let request = match input.byte()? {
            0 => Request::Program {
                id: input.u32()?,
                build_id: input.bytes(MAX_BUILD_ID_BYTES)?.to_vec(),
                lines: input.flag()?,
                offsets: input.numbers()?,
            },
            1 => Request::Debug { id: input.u32()? },
            2 => Request::PerfMap { addresses: input.numbers()? },
            _ => return None,
        };
        input.0.is_empty().then_some(request)
    }
}

impl Answer {
    /// Encodes the message without its length. Trailing frames that would exceed the limit are left out.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        match self {
            Answer::Frames(locations) => {
                bytes.push(0);
                bytes.extend((locations.len() as u32).to_le_bytes());
                // Reserves space for the empty lists of the remaining locations.
                let most = MAX_ANSWER_BYTES - MAX_LOCATIONS;
                for frames in locations {
                    let start = bytes.len();
                    put_frames(&mut bytes, frames);
                    if bytes.len() > most {
                        bytes.truncate(start);
                        bytes.push(0);
                    }
                }
            }
            Answer::OtherFile => bytes.push(1),
            Answer::NoProgram => bytes.push(2),
            Answer::Needs(file) => {
                bytes.push(3);
                bytes.push(u8::from(file.shared));
                put(&mut bytes, &file.build_id, MAX_BUILD_ID_BYTES);
                put(&mut bytes, file.name.as_bytes(), MAX_LINK_BYTES);
            }
            Answer::Taken => bytes.push(4),
        }
        bytes
    }

    /// Parses an answer to a request about this many locations; None if it is malformed.
    pub(super) fn decode(bytes: &[u8], locations: usize) -> Option<Answer> {
        let mut input = Input(bytes);
        let answer = match input.byte()? {
            0 => {
                if input.u32()? as usize != locations {
                    return None;
                }
                Answer::Frames((0..locations).map(|_| input.frames()).collect::<Option<_>>()?)
            }
            1 => Answer::OtherFile,
            2 => Answer::NoProgram,
            3 => Answer::Needs(DebugFile {
                shared: input.flag()?,
                build_id: input.bytes(MAX_BUILD_ID_BYTES)?.to_vec(),
                name: input.text(MAX_LINK_BYTES)?,
            }),
            4 => Answer::Taken,
            _ => return None,
        };
        input.0.is_empty().then_some(answer)
    }
}

/// Appends a text, cut at `most` bytes.
fn put(bytes: &mut Vec<u8>, text: &[u8], most: usize) {
    let text = &text[..text.len().min(most)];
    bytes.extend((text.len() as u16).to_le_bytes());
    bytes.extend(text);
}

fn put_frames(bytes: &mut Vec<u8>, frames: &[NamedFrame]) {
    let frames = &frames[..frames.len().min(MAX_FRAMES)];
    bytes.push(frames.len() as u8);
    for frame in frames {
        bytes.push(u8::from(frame.inlined));
        put(bytes, frame.function.as_bytes(), MAX_TEXT_BYTES);
        put(bytes, frame.file.as_deref().unwrap_or_default().as_bytes(), MAX_TEXT_BYTES);
        bytes.extend(frame.line.unwrap_or_default().to_le_bytes());
        bytes.extend(frame.offset.unwrap_or(u64::MAX).to_le_bytes());
    }
}

/// The unparsed rest of a message.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn take(&mut self, bytes: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(bytes)?;
        self.0 = rest;
        Some(taken)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take(1).map(|taken| taken[0])
    }

    fn flag(&mut self) -> Option<bool> {
        match self.byte()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    fn bytes(&mut self, most: usize) -> Option<&'a [u8]> {
        let length = u16::from_le_bytes(self.take(2)?.try_into().ok()?);
        if usize::from(length) > most { None } else { self.take(length.into()) }
    }

    /// The sender may have cut the text inside a character.
    fn text(&mut self, most: usize) -> Option<String> {
        Some(String::from_utf8_lossy(self.bytes(most)?).into_owned())
    }

    fn numbers(&mut self) -> Option<Vec<u64>> {
        let count = self.u32()? as usize;
        if count > MAX_LOCATIONS {
            return None;
        }
        (0..count).map(|_| self.u64()).collect()
    }

    fn frames(&mut self) -> Option<Vec<NamedFrame>> {
        let count = usize::from(self.byte()?);
        if count > MAX_FRAMES {
            return None;
        }
        (0..count).map(|_| self.frame()).collect()
    }

    fn frame(&mut self) -> Option<NamedFrame> {
        let inlined = self.flag()?;
        let function = self.text(MAX_TEXT_BYTES)?;
        let file = self.text(MAX_TEXT_BYTES)?;
        let (line, offset) = (self.u32()?, self.u64()?);
        Some(NamedFrame {
            function,
            offset: (offset != u64::MAX).then_some(offset),
            file: (!file.is_empty()).then_some(file),
            line: (line != 0).then_some(line),
            inlined,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requests() -> Vec<Request> {
        vec![
            Request::Program { id: 7, build_id: vec![1, 2], lines: true, offsets: vec![0, u64::MAX] },
            Request::Debug { id: u32::MAX },
            Request::PerfMap { addresses: (0..100).collect() },
        ]
    }

    fn answers() -> Vec<Answer> {
        let frame = NamedFrame {
            function: "main".into(),
            offset: Some(3),
            file: Some("/a.c".into()),
            line: Some(5),
            inlined: true,
        };
        vec![
            Answer::Frames(vec![vec![frame, NamedFrame::default()], Vec::new()]),
            Answer::OtherFile,
            Answer::NoProgram,
            Answer::Needs(DebugFile { shared: true, build_id: vec![9; 64], name: "a.debug".into() }),
            Answer::Taken,
        ]
    }

    #[test]
    fn messages_are_what_was_sent() {
        for request in requests() {
            let bytes = request.encode();
            assert!(bytes.len() <= MAX_REQUEST_BYTES);
            assert_eq!(Request::decode(&bytes), Some(request));
        }
        let most = Request::PerfMap { addresses: vec![7; MAX_LOCATIONS] }.encode();
        assert!(most.len() <= MAX_REQUEST_BYTES && Request::decode(&most).is_some());
        for answer in answers() {
            assert_eq!(Answer::decode(&answer.encode(), 2), Some(answer));
        }
    }

    #[test]
    fn truncated_changed_and_long_messages_are_refused() {
        for bytes in requests().iter().map(Request::encode) {
            assert!((0..bytes.len()).all(|length| Request::decode(&bytes[..length]).is_none()));
            assert_eq!(Request::decode(&[bytes, vec![0]].concat()), None);
        }
        for bytes in answers().iter().map(Answer::encode) {
            assert!((0..bytes.len()).all(|length| Answer::decode(&bytes[..length], 2).is_none()));
            assert_eq!(Answer::decode(&[bytes, vec![0]].concat(), 2), None);
        }
        let two = Answer::Frames(vec![Vec::new(); 2]).encode();
        assert_eq!((Answer::decode(&two, 1), Answer::decode(&two, 3)), (None, None));
        // 65 frames; a name of 4097 bytes; an invalid flag.
        assert_eq!(Answer::decode(&[0, 1, 0, 0, 0, 65], 1), None);
        assert_eq!(
            Answer::decode(&[&[0, 1, 0, 0, 0, 1, 0][..], &4097_u16.to_le_bytes(), &[0; 5000]].concat(), 1),
            None
        );
        assert_eq!(Answer::decode(&[0, 1, 0, 0, 0, 1, 2], 1), None);
    }

    #[test]
    fn an_answer_is_cut_to_its_length() {
        let frame = NamedFrame { function: "x".repeat(2 * MAX_TEXT_BYTES), ..NamedFrame::default() };
        let mut locations = vec![vec![frame; MAX_FRAMES + 1]; 100];
        locations.resize(MAX_LOCATIONS, Vec::new());
        let bytes = Answer::Frames(locations).encode();
        assert!(bytes.len() <= MAX_ANSWER_BYTES);
        let Some(Answer::Frames(locations)) = Answer::decode(&bytes, MAX_LOCATIONS) else {
            panic!("it is an answer");
        };
        assert_eq!((locations[0].len(), locations[0][0].function.len()), (MAX_FRAMES, MAX_TEXT_BYTES));
        assert_eq!((locations[99].len(), locations[MAX_LOCATIONS - 1].len()), (0, 0));
    }
}
