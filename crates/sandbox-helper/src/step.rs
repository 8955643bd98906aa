//! The steps of keeper and init that can fail, by number on the wire and by name for people.

use std::fmt;

macro_rules! steps {
    ($($number:literal $name:ident $text:literal),* $(,)?) => {
        /// A step of the set-up that failed; its text completes "the sandbox could not …".
        ///
        /// The numbers are part of the protocol: one is added at the end, none is reused.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Step {
            $(#[doc = $text] $name,)*
            /// A step that this build does not know.
            Unknown(u16),
        }

        impl Step {
            /// The steps that this build knows.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// The number on the wire.
            #[must_use]
            pub fn number(self) -> u16 {
                match self {
                    $(Self::$name => $number,)*
                    Self::Unknown(number) => number,
                }
            }

            /// The step of a number; total.
            #[must_use]
            pub fn from_number(number: u16) -> Self {
                match number {
                    $($number => Self::$name,)*
                    other => Self::Unknown(other),
                }
            }

            fn text(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                    Self::Unknown(_) => "take a step that this build does not know",
                }
            }
        }
    };
}

steps! {
    1 Descriptors "close inherited descriptors",
    2 Configuration "read its configuration",
    3 Owner "change to the dedicated user",
    4 OomScore "raise its own OOM score",
    5 UserNamespace "make a user namespace",
    6 IdMaps "map its user and group",
    7 PidNamespace "make a pid namespace",
    8 Fork "fork",
    9 NetworkNamespace "make a network namespace",
    10 MountNamespace "make a mount namespace",
    11 HostNetwork "leave the host's network namespace",
    12 PrivateMounts "make its mounts private",
    13 MountProc "mount a fresh /proc",
    14 Loopback "bring the loopback interface up",
    15 OpenSession "open the session's folder",
    16 OpenReadOnly "open a read-only folder",
    17 KeeperRoot "mount a root of its own",
    18 AttachSession "attach the session's folder",
    19 AttachReadOnly "attach a read-only folder",
    20 CopyHelper "copy the helper",
    21 MountTmp "mount the session's /tmp",
    22 WriteEtc "write /etc",
    23 BindSystem "bind the system's folders",
    24 PivotRoot "change its root",
    25 OpenWorkspace "open the workspace",
    26 SignalDescriptor "watch its children",
    27 Pipe "make a pipe",
    28 TooManyCommands "hold one more command",
    29 Request "read the command's request",
    30 Stdio "place the command's pipes",
    31 ProcessGroup "make a process group",
    32 Limits "set the command's limits",
    33 Filter "install the system-call filter",
    34 Wait "wait for the command",
    35 NotDumpable "close itself to other processes",
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // FI-24: the name of every step survives the wire, whatever number comes in.
    #[test]
    fn numbers_round_trip_and_are_dense() {
        for number in 0..=u16::MAX {
            assert_eq!(Step::from_number(number).number(), number);
        }
        let numbers: Vec<u16> = Step::ALL.iter().map(|step| step.number()).collect();
        let dense: Vec<u16> = (1..=Step::ALL.len() as u16).collect();
        assert_eq!(numbers, dense);
    }
}
