//! What goes over the socket between the host and its naming process: both sides parse it strictly, and every length is
//! bounded. The host takes the naming process for hostile: it has read files of others.
//!
//! A message is its length (u32) and so many bytes; integers are little-endian; a text is its length (u16) and its bytes. A
//! descriptor comes with the first byte of the length.

/// Most bytes of a message to the naming process.
pub(super) const MAX_REQUEST_BYTES: usize = 128 << 10;
/// Most bytes of an answer.
pub(super) const MAX_ANSWER_BYTES: usize = 16 << 20;
/// Most addresses of a request.
pub(crate) const MAX_LOCATIONS: usize = 8192;
/// Most frames of one address: a function and what is inlined there.
pub(super) const MAX_FRAMES: usize = 64;
/// Most bytes of a name, or of a path of a source file.
pub(crate) const MAX_TEXT_BYTES: usize = 4096;
/// Most bytes of a build id: 20 are usual, 64 the most that linkers make.
pub(super) const MAX_BUILD_ID_BYTES: usize = 64;
/// Most bytes of the name of a debug file.
const MAX_LINK_BYTES: usize = 255;

/// What the host asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Request {
    /// The functions at offsets into a program or library. Its descriptor comes with the first request for it.
    Program {
        /// How the host calls the file.
        id: u32,
        /// Only if it has this build id; empty: whatever it has.
        build_id: Vec<u8>,
        /// With inlined functions and source lines, from debug information.
        lines: bool,
        /// Into the file.
        offsets: Vec<u64>,
    },
    /// The debug file that was asked for comes with it; without a descriptor there is none.
    Debug { id: u32 },
    /// The functions at addresses, which ascend, in a map that a just-in-time compiler wrote. Its descriptor comes with it.
    PerfMap { addresses: Vec<u64> },
}

/// What the naming process answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer {
    /// The frames of each offset or address, the outermost function first; none where nothing is known.
    Frames(Vec<Vec<NamedFrame>>),
    /// The file has another build id.
    OtherFile,
    /// It is no ELF file, or one that cannot be understood.
    NoProgram,
    /// Debug information is in another file, which the host may open or not. The request is repeated after it.
    Needs(DebugFile),
    /// The debug file was taken.
    Taken,
}

/// A file with debug information of another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DebugFile {
    /// Whether several debug files share it (`.gnu_debugaltlink`).
    pub(super) shared: bool,
    /// Its build id; empty: not known.
    pub(super) build_id: Vec<u8>,
    /// Its name, without folders; empty: not known.
    pub(super) name: String,
}

/// A function at a place.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct NamedFrame {
    /// Its name.
    pub(crate) function: String,
    /// Bytes from its start to the place, if its start is known.
    pub(crate) offset: Option<u64>,
    /// Its source file.
    pub(crate) file: Option<String>,
    /// The line in it.
    pub(crate) line: Option<u32>,
    /// Whether it is a part of the function before it.
    pub(crate) inlined: bool,
}

impl Request {
    /// The bytes behind the length.
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

    /// None if it is no request.
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
    /// The bytes behind the length. Frames that would make it too long are left out, from the last on.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        match self {
            Answer::Frames(locations) => {
                bytes.push(0);
                bytes.extend((locations.len() as u32).to_le_bytes());
                // Room for the empty lists of all that may come behind the last one with frames.
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

    /// None if it is no answer to a request for so many places.
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

/// Texts that are longer are cut.
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

/// What is left of a message.
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

    /// A text may have been cut inside a character.
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
    fn what_is_cut_changed_or_too_long_is_no_message() {
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
        // 65 frames, a name of 4097 bytes, a flag that is neither.
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
