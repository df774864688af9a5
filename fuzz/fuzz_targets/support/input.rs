//! Inputs that are taken apart into what a target makes of them.

/// Bytes above this mean something that is not true.
const TRUE_MAX: u8 = 200;

/// Takes the input apart; what is not there is 0.
pub struct Input<'a>(pub &'a [u8]);

impl<'a> Input<'a> {
    pub fn byte(&mut self) -> u8 {
        let Some((&byte, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        byte
    }

    pub fn lies(&mut self) -> bool {
        self.byte() > TRUE_MAX
    }

    pub fn bytes(&mut self, len: usize) -> &'a [u8] {
        let (bytes, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        bytes
    }

    /// Bytes behind their length.
    pub fn short(&mut self, max: u8) -> &'a [u8] {
        let len = self.byte() % max;
        self.bytes(len.into())
    }
}
