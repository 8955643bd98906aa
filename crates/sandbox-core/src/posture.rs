//! How well a session is isolated, as measured.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::restriction::{Finding, Restriction, Standing};

/// The number of a session's policy: raised by every change, never reused.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    schemars::JsonSchema,
)]
#[serde(transparent)]
pub struct Revision(u64);

impl Revision {
    /// The revision of a new session.
    pub const FIRST: Self = Self(1);

    /// The one after it.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// The short answer about an isolation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Grade {
    /// Files, processes, secrets and resources hold.
    Full,
    /// Files, processes and secrets hold; resources don't, or nobody has measured them.
    Partial,
    /// Less than that, or not measured: not a place for code that nobody trusts.
    None,
}

impl fmt::Display for Grade {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "full",
            Self::Partial => "partial",
            Self::None => "none",
        })
    }
}

/// What a probe found: one finding per restriction, and the grade that follows.
///
/// The grade is computed, so that no backend can claim one. `network-denied` does not
/// enter it: under an allow list it is rightly missing (SPEC COD-1).
///
/// ```
/// use sandbox_core::{Finding, Grade, Posture, Restriction, Standing};
///
/// let unmeasured = Posture::new(Vec::new());
/// assert_eq!(unmeasured.grade(), Grade::None);
/// assert_eq!(unmeasured.standing(Restriction::WriteContained), Standing::Unknown);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct Posture {
    grade: Grade,
    restrictions: Vec<Finding>,
}

impl Posture {
    /// Takes the findings; a restriction without one is `unknown`.
    ///
    /// Of two findings for one restriction the worse one stands.
    #[must_use]
    pub fn new(findings: Vec<Finding>) -> Self {
        let restrictions: Vec<Finding> = Restriction::ALL
            .iter()
            .map(|&restriction| {
                findings
                    .iter()
                    .filter(|finding| finding.restriction == restriction)
                    .max_by_key(|finding| match finding.standing {
                        Standing::Ok => 0,
                        Standing::Unknown => 1,
                        Standing::Missing => 2,
                    })
                    .cloned()
                    .unwrap_or_else(|| Finding {
                        restriction,
                        standing: Standing::Unknown,
                        evidence: "nothing has measured it".to_owned(),
                    })
            })
            .collect();
        let holds = |restriction| {
            restrictions.iter().any(|finding| {
                finding.restriction == restriction && finding.standing == Standing::Ok
            })
        };
        let grade = if ![
            Restriction::WriteContained,
            Restriction::ProcessContained,
            Restriction::SecretsHidden,
        ]
        .into_iter()
        .all(holds)
        {
            Grade::None
        } else if holds(Restriction::ResourcesBounded) {
            Grade::Full
        } else {
            Grade::Partial
        };
        Self {
            grade,
            restrictions,
        }
    }

    /// The short answer.
    #[must_use]
    pub fn grade(&self) -> Grade {
        self.grade
    }

    /// One finding per restriction, in the order of [`Restriction::ALL`].
    #[must_use]
    pub fn findings(&self) -> &[Finding] {
        &self.restrictions
    }

    /// Whether this restriction holds.
    #[must_use]
    pub fn standing(&self, restriction: Restriction) -> Standing {
        self.restrictions
            .iter()
            .find(|finding| finding.restriction == restriction)
            .map_or(Standing::Unknown, |finding| finding.standing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn posture(standings: [Standing; 5]) -> Posture {
        Posture::new(
            Restriction::ALL
                .into_iter()
                .zip(standings)
                .map(|(restriction, standing)| Finding {
                    restriction,
                    standing,
                    evidence: "seen".to_owned(),
                })
                .collect(),
        )
    }

    // COD-1, CON-4: a grade follows from findings and from nothing else.
    #[test]
    fn cod_1_the_grade_follows_from_the_findings() {
        use Standing::{Missing, Ok, Unknown};
        let table = [
            ([Ok, Ok, Ok, Ok, Ok], Grade::Full),
            ([Ok, Ok, Ok, Missing, Ok], Grade::Full),
            ([Ok, Ok, Ok, Ok, Missing], Grade::Partial),
            ([Ok, Ok, Ok, Ok, Unknown], Grade::Partial),
            ([Unknown, Ok, Ok, Ok, Ok], Grade::None),
            ([Ok, Missing, Ok, Ok, Ok], Grade::None),
            ([Ok, Ok, Unknown, Ok, Ok], Grade::None),
        ];
        for (standings, grade) in table {
            assert_eq!(posture(standings).grade(), grade, "{standings:?}");
        }
    }

    #[test]
    fn con_4_of_two_findings_the_worse_one_stands() {
        let finding = |standing| Finding {
            restriction: Restriction::WriteContained,
            standing,
            evidence: String::new(),
        };
        let posture = Posture::new(vec![finding(Standing::Missing), finding(Standing::Ok)]);
        assert_eq!(
            posture.standing(Restriction::WriteContained),
            Standing::Missing
        );
    }
}
