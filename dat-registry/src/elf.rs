//! What the header and the symbols of a shared object say, read from the file without loading it.

use std::fmt;
use std::path::Path;

use crate::search;

/// Largest library that is read; ours have 4 MB with debug information left out, 60 MB with it.
const LARGEST: u64 = 512 << 20;
/// Bytes at the beginning of a file that have its headers; all linkers put them there.
const HEADERS: u64 = 4096;

/// First bytes of an ELF file.
const MAGIC: &[u8] = b"\x7fELF";

/// The kind of machine that an object is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Machine {
    /// 32 or 64.
    bits: u8,
    /// Whether numbers are little endian.
    little: bool,
    /// `e_machine`.
    code: u16,
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.code {
            3 => "i386",
            20 => "powerpc",
            21 if self.little => "powerpc64le",
            21 => "powerpc64",
            22 if self.bits == 64 => "s390x",
            22 => "s390",
            40 => "arm",
            62 if self.bits == 32 => "x32",
            62 => "x86-64",
            183 => "aarch64",
            243 => "riscv",
            other => return write!(f, "machine {other} of {} bits", self.bits),
        };
        f.write_str(name)
    }
}

/// The machine of this program.
pub const OWN: Machine = Machine {
    bits: if cfg!(target_pointer_width = "64") {
        64
    } else {
        32
    },
    little: cfg!(target_endian = "little"),
    code: if cfg!(target_arch = "aarch64") {
        183
    } else if cfg!(target_arch = "powerpc64") {
        21
    } else if cfg!(target_arch = "s390x") {
        22
    } else {
        62
    },
};

/// A shared object, as bytes.
#[derive(Debug)]
pub struct Object {
    bytes: Vec<u8>,
    machine: Machine,
}

/// The reason why a file is no shared object.
#[derive(Debug, thiserror::Error)]
pub enum ElfError {
    /// The file cannot be read.
    #[error("cannot be read: {0}")]
    Read(#[from] std::io::Error),
    /// The file is something else.
    #[error("is no shared object (no ELF header)")]
    NotElf,
    /// The file ends in its headers, or before what has to be mapped: a copy that was interrupted.
    #[error("is cut off: it has {has} bytes, and {wants} are needed; copy it again")]
    CutOff {
        /// Bytes of the file.
        has: usize,
        /// End of the header, or of the last segment.
        wants: usize,
    },
}

impl Object {
    /// Reads a shared object, of at most 512 MiB.
    ///
    /// # Errors
    /// [`ElfError`].
    pub fn read(path: &Path) -> Result<Self, ElfError> {
        let object = Self::parse(search::read_up_to(path, LARGEST)?)?;
        object.check_length_of(object.bytes.len())?;
        Ok(object)
    }

    /// Checks that the file is not shorter than what its header tells of. Reads the headers only, since this precedes every load of a library.
    /// Returns its machine.
    ///
    /// # Errors
    /// [`ElfError`].
    pub fn check_length(path: &Path) -> Result<Machine, ElfError> {
        let (bytes, length) = search::read_head(path, HEADERS)?;
        let object = Self::parse(bytes)?;
        object.check_length_of(usize::try_from(length).unwrap_or(usize::MAX))?;
        Ok(object.machine)
    }

    fn parse(bytes: Vec<u8>) -> Result<Self, ElfError> {
        // An empty file is the beginning of one, too.
        if !MAGIC.starts_with(&bytes[..bytes.len().min(MAGIC.len())]) {
            return Err(ElfError::NotElf);
        }
        let wants = if bytes.get(4) == Some(&1) { 52 } else { 64 };
        let has = bytes.len();
        let header = bytes.get(..wants).ok_or(ElfError::CutOff { has, wants })?;
        let little = header[5] == 1;
        let code = [header[18], header[19]];
        let machine = Machine {
            bits: if header[4] == 2 { 64 } else { 32 },
            little,
            code: if little {
                u16::from_le_bytes(code)
            } else {
                u16::from_be_bytes(code)
            },
        };
        Ok(Self { bytes, machine })
    }

    /// The dynamic loader maps a file that is cut off without looking, and ends the program with SIGBUS.
    fn check_length_of(&self, has: usize) -> Result<(), ElfError> {
        match self.end_of_segments() {
            Some(wants) if wants > has => Err(ElfError::CutOff { has, wants }),
            _ => Ok(()),
        }
    }

    /// Returns the end of the last loaded segment in the file, or of their table; `None` if the table cannot be found.
    fn end_of_segments(&self) -> Option<usize> {
        if self.machine.bits != 64 {
            return None;
        }
        let (headers, entry, count) = (
            self.number(32, 8)?,
            self.number(54, 2)?,
            self.number(56, 2)?,
        );
        let ends = (0..count).filter_map(|at| {
            let header = headers + at * entry;
            // PT_LOAD; one without bytes in the file may begin anywhere.
            let length = self.number(header + 32, 8)?;
            let is_mapped = self.number(header, 4)? == 1 && length > 0;
            is_mapped.then_some(self.number(header + 8, 8)? + length)
        });
        ends.chain([headers + count * entry]).max()
    }

    /// Returns the machine that the object is for.
    #[must_use]
    pub fn machine(&self) -> Machine {
        self.machine
    }

    /// Returns true if the object exports `name`; `None` if its symbols cannot be read.
    #[must_use]
    pub fn exports(&self, name: &str) -> Option<bool> {
        Some(self.symbol(name)?.is_some())
    }

    /// Returns the bytes of the exported variable `name`.
    #[must_use]
    pub fn variable(&self, name: &str) -> Option<&[u8]> {
        let (address, size) = self.symbol(name)??;
        let (headers, entry, count) = (
            self.number(32, 8)?,
            self.number(54, 2)?,
            self.number(56, 2)?,
        );
        for at in 0..count {
            let header = headers + at * entry;
            let [offset, start, length] = [8, 16, 32].map(|field| self.number(header + field, 8));
            let (offset, start, length) = (offset?, start?, length?);
            // PT_LOAD
            if self.number(header, 4)? == 1 && address >= start && address + size <= start + length
            {
                let from = offset + (address - start);
                return self.bytes.get(from..from.checked_add(size)?);
            }
        }
        None
    }

    /// Returns address and size of a defined dynamic symbol. The outer `None`: the object has no table of a known layout.
    fn symbol(&self, name: &str) -> Option<Option<(usize, usize)>> {
        if self.machine.bits != 64 {
            return None;
        }
        let (headers, entry, count) = (
            self.number(40, 8)?,
            self.number(58, 2)?,
            self.number(60, 2)?,
        );
        let section =
            |at: usize, field: usize, size| self.number(headers + at * entry + field, size);
        // SHT_DYNSYM
        let table = (0..count).find(|at| section(*at, 4, 4) == Some(11))?;
        let (start, length) = (section(table, 24, 8)?, section(table, 32, 8)?);
        let names = section(section(table, 40, 4)?, 24, 8)?;
        for symbol in (start..start.checked_add(length)?).step_by(24) {
            let text = self.bytes.get(names + self.number(symbol, 4)?..)?;
            let is_it = text
                .strip_prefix(name.as_bytes())
                .is_some_and(|rest| rest.first() == Some(&0));
            if is_it && self.number(symbol + 6, 2)? != 0 {
                let found = (self.number(symbol + 8, 8)?, self.number(symbol + 16, 8)?);
                return Some(Some(found));
            }
        }
        Some(None)
    }

    /// Reads a number of up to eight bytes, in the object's byte order.
    fn number(&self, at: usize, size: usize) -> Option<usize> {
        let bytes = self.bytes.get(at..at.checked_add(size)?)?;
        let append = |n: u64, b: &u8| n.checked_mul(256).map(|n| n + u64::from(*b));
        let number = if self.machine.little {
            bytes.iter().rev().try_fold(0, append)?
        } else {
            bytes.iter().try_fold(0, append)?
        };
        // Sums of these numbers must not overflow; no file is that large.
        usize::try_from(number).ok().filter(|n| *n < 1 << 48)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::process::Command;

    #[test]
    fn machine_symbols_and_variables() {
        let dir = tempfile::tempdir().unwrap();
        let (source, library) = (dir.path().join("a.c"), dir.path().join("a.so"));
        fs::write(&source, "const char words[6] = \"hello\"; int init(void) { return 0; } int missing(void); int use(void) { return missing(); }").unwrap();
        // Another compiler than `cc` if the test was built for another processor (scripts/ports.sh).
        let mut cc = Command::new(std::env::var("CC").unwrap_or_else(|_| "cc".into()));
        cc.args(["-shared", "-fPIC", "-o"])
            .arg(&library)
            .arg(&source);
        assert!(cc.status().unwrap().success());
        let object = Object::read(&library).unwrap();
        assert_eq!(object.machine(), OWN);
        assert_eq!(object.exports("init"), Some(true));
        assert_eq!(object.exports("missing"), Some(false), "undefined");
        assert_eq!(object.exports("ini"), Some(false));
        assert_eq!(object.variable("words"), Some(&b"hello\0"[..]));
        let mut other = fs::read(&library).unwrap();
        // A copy that was interrupted. Without the section headers at its end it still loads.
        fs::write(&library, &other[..1000]).unwrap();
        let cut_off = Object::read(&library).unwrap_err();
        assert!(
            cut_off.to_string().contains("it has 1000 bytes"),
            "{cut_off}"
        );
        // The magic number, the header and the table of segments are cut off in the same way.
        for length in [0, 3, 4, 19, 20, 63, 64, 200] {
            fs::write(&library, &other[..length]).unwrap();
            let refused = [
                Object::read(&library).unwrap_err(),
                Object::check_length(&library).unwrap_err(),
            ];
            for error in refused {
                assert!(
                    matches!(error, ElfError::CutOff { has, wants } if has == length && wants > has),
                    "{length}: {error}"
                );
            }
        }
        fs::write(&library, &other[..other.len() - 64]).unwrap();
        assert!(Object::read(&library).is_ok());
        other[18..20].copy_from_slice(&243_u16.to_ne_bytes());
        fs::write(&library, &other).unwrap();
        assert_ne!(Object::read(&library).unwrap().machine(), OWN);
        fs::write(&library, "text").unwrap();
        assert!(matches!(Object::read(&library), Err(ElfError::NotElf)));
        // Any damage of the file is survived.
        for at in 0..other.len().min(4096) {
            let mut damaged = other.clone();
            damaged[at] = 0xFF;
            let object = Object {
                bytes: damaged,
                machine: OWN,
            };
            let _ = object.exports("init");
            let _ = object.variable("words");
        }
    }
}
