//! The lines of statistics, and walks that make them in steps.

/// Where statistics go, a name and a value at a time.
pub(crate) type AddStat<'e> = &'e mut dyn FnMut(&str, &str);

/// The rest of a group of statistics: each call makes some of its lines, and returns whether there are more.
pub(crate) struct StatGenerator(Box<dyn FnMut(AddStat<'_>) -> bool + Send>);

impl StatGenerator {
    /// A walk made of a function that makes one step.
    pub(crate) fn new(step: impl FnMut(AddStat<'_>) -> bool + Send + 'static) -> Self {
        Self(Box::new(step))
    }

    /// A walk over items, one in each step.
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

    /// This walk, then another one that begins when this one has ended.
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

    /// Makes one step. False when there is nothing more.
    pub(crate) fn step(&mut self, each: AddStat<'_>) -> bool {
        (self.0)(each)
    }
}
