//! Generators of statistics, which produce their lines in steps.

/// The sink of statistics: called with the name and value of each.
pub(crate) type AddStat<'e> = &'e mut dyn FnMut(&str, &str);

/// The rest of a group of statistics. Each call produces some lines, and returns true if there are more.
pub(crate) struct StatGenerator(Box<dyn FnMut(AddStat<'_>) -> bool + Send>);

impl StatGenerator {
    /// A generator whose steps are calls of a function.
    pub(crate) fn new(step: impl FnMut(AddStat<'_>) -> bool + Send + 'static) -> Self {
        Self(Box::new(step))
    }

    /// A generator with a step for each item.
    pub(crate) fn over<I>(
        items: I,
        mut show: impl FnMut(I::Item, AddStat<'_>) + Send + 'static,
    ) -> Self
    where
        I: IntoIterator<IntoIter: Send + 'static>,
    {
        let mut items = items.into_iter();
        Self::new(move |each| {
            let item = items.next();
            let is_there = item.is_some();
            if let Some(item) = item {
                show(item, each);
            }
            is_there
        })
    }

    /// Appends another generator, created when this one has ended.
    pub(crate) fn then(self, next: impl FnOnce() -> Self + Send + 'static) -> Self {
        let Self(mut step) = self;
        let mut next = Some(next);
        Self::new(move |each| {
            if step(each) {
                return true;
            }
            match next.take() {
                Some(next) => {
                    let Self(begun) = next();
                    step = begun;
                    true
                }
                None => false,
            }
        })
    }

    /// Makes one step. Returns false at the end.
    pub(crate) fn step(&mut self, each: AddStat<'_>) -> bool {
        (self.0)(each)
    }
}
