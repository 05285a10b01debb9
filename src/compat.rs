//! Whether rules decide as Sentinel does.

/// That a rule decides as Sentinel does (`compat`). Without the feature `sentinel` there is no such value, and the code that takes one
/// is left out.
#[cfg(feature = "sentinel")]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct AsSentinel(());

#[cfg(not(feature = "sentinel"))]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AsSentinel {}

impl AsSentinel {
    /// `Some` if `compat` says so.
    #[cfg(feature = "sentinel")]
    #[inline]
    pub(crate) fn of(compat: bool) -> Option<AsSentinel> {
        compat.then_some(AsSentinel(()))
    }

    #[cfg(not(feature = "sentinel"))]
    #[inline]
    pub(crate) fn of(_: bool) -> Option<AsSentinel> {
        None
    }
}
