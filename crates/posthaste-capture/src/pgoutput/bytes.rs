//! Reads numbers and texts from the front of a message.

use bytes::{Buf as _, Bytes};

use crate::lsn::Lsn;

pub(super) struct MessageReader(pub(super) Bytes);

impl MessageReader {
    pub(super) fn take_bytes(&mut self, length: usize) -> Result<Bytes, String> {
        match self.0.len() >= length {
            true => Ok(self.0.split_to(length)),
            false => Err(format!(
                "a message is cut short: {length} bytes are expected, {} are left",
                self.0.len()
            )),
        }
    }

    pub(super) fn skip_bytes(&mut self, length: usize) -> Result<(), String> {
        self.take_bytes(length).map(drop)
    }

    pub(super) fn read_u8(&mut self) -> Result<u8, String> {
        Ok(self.take_bytes(1)?.get_u8())
    }

    pub(super) fn read_u16(&mut self) -> Result<u16, String> {
        Ok(self.take_bytes(2)?.get_u16())
    }

    pub(super) fn read_u32(&mut self) -> Result<u32, String> {
        Ok(self.take_bytes(4)?.get_u32())
    }

    pub(super) fn read_u64(&mut self) -> Result<u64, String> {
        Ok(self.take_bytes(8)?.get_u64())
    }

    pub(super) fn read_lsn(&mut self) -> Result<Lsn, String> {
        self.read_u64().map(Lsn)
    }

    pub(super) fn expect_byte(&mut self, byte: u8) -> Result<(), String> {
        match self.read_u8()? {
            found if found == byte => Ok(()),
            found => Err(format!("the byte is {found} where {byte} is expected")),
        }
    }

    pub(super) fn read_utf8(&mut self, length: usize) -> Result<String, String> {
        let bytes = self.take_bytes(length)?;
        let text = std::str::from_utf8(&bytes).map(ToOwned::to_owned);
        text.map_err(|_| "a text is not UTF-8".to_owned())
    }

    /// Reads a text that ends with a zero byte.
    pub(super) fn read_c_string(&mut self) -> Result<String, String> {
        let end = self.0.iter().position(|byte| *byte == 0);
        let text = self.read_utf8(end.ok_or("a text has no end")?)?;
        self.skip_bytes(1)?;
        Ok(text)
    }

    pub(super) fn require_end(&self) -> Result<(), String> {
        match self.0.len() {
            0 => Ok(()),
            left => Err(format!("a message has {left} bytes too many")),
        }
    }
}
