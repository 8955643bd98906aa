//! What every backend does, as tests.
//!
//! A property is a function of a `&dyn Backend` that panics where the backend is wrong. It
//! asks through the traits alone, in a session of its own that it deletes, and its name
//! begins with the line of SPEC that it proves. [`contract_tests!`](crate::contract_tests)
//! makes one test of each.

#![expect(clippy::unwrap_used, reason = "a property that fails says where")]

pub mod commands;
pub mod files;
pub mod lifecycle;
pub mod policy;
pub mod script;

mod place;

use std::any::Any;
use std::sync::Arc;

use sandbox_core::Backend;

/// A backend under test, with what must live as long as it does.
#[derive(Debug)]
pub struct Subject {
    backend: Arc<dyn Backend>,
    _kept: Option<Box<dyn Any + Send + Sync>>,
}

impl Subject {
    /// The backend.
    #[must_use]
    pub fn backend(&self) -> &dyn Backend {
        &*self.backend
    }

    /// Keeps something until the test is over: a folder that is then removed, say.
    #[must_use]
    pub fn keeping(backend: Arc<dyn Backend>, kept: impl Any + Send + Sync) -> Self {
        Self {
            backend,
            _kept: Some(Box::new(kept)),
        }
    }
}

impl From<Arc<dyn Backend>> for Subject {
    fn from(backend: Arc<dyn Backend>) -> Self {
        Self {
            backend,
            _kept: None,
        }
    }
}

/// Names every property once, and hands the list to another macro.
#[doc(hidden)]
#[macro_export]
macro_rules! contract_properties {
    ($then:path, $($given:tt)*) => {
        $then! {
            { $($given)* }
            files: [
                path_1_both_spellings_name_the_same_place,
                path_2_every_operation_refuses_odd_paths,
                path_5_odd_names_are_listed_packed_and_removed,
                ses_2_host_and_commands_see_the_same_files,
                ses_2_text_that_is_not_utf_8_is_refused,
                ses_2_remove_is_recursive_and_repeatable,
                ses_3_the_root_stays,
                ses_4_a_write_makes_missing_parents,
                ses_4_a_replacement_is_atomic_under_readers,
                ses_4_a_write_keeps_the_mode,
                ses_4_a_write_over_the_limit_touches_nothing,
                ses_5_a_read_over_the_limit_names_the_size,
                ses_5_folders_and_fifos_are_refused_at_once,
                ses_6_a_link_out_is_refused,
                ses_6_a_link_is_removed_not_followed,
                ses_6_a_link_that_stays_inside_is_followed,
                ses_8_a_list_is_whole_and_in_byte_order,
                ses_8_a_list_over_the_limit_is_refused,
                ses_8_make_dir_makes_parents,
                ses_8_rename_replaces_its_like,
                ses_8_large_files_are_streamed,
                ses_8_a_failed_stream_changes_nothing,
                ses_8_pack_and_unpack_round_trip,
                ses_8_a_hostile_archive_stays_inside,
            ]
            commands: [
                cmd_2_no_variable_of_the_host_leaks_in,
                cmd_2_a_command_starts_in_its_folder,
                cmd_1_odd_arguments_arrive_as_they_are,
                cmd_4_an_exit_code_is_told,
                cmd_4_a_signal_is_told,
                cmd_4_both_streams_are_captured,
                cmd_4_a_program_of_the_workspace_runs,
                proc_7_a_missing_executable_is_a_result,
                proc_7_what_is_not_executable_is_a_result,
                cmd_4_a_bad_working_directory_is_a_result,
                proc_2_standard_input_arrives_and_ends,
                proc_2_a_mebibyte_goes_through_both_ways,
                proc_2_unread_input_is_no_error,
                proc_2_closed_input_is_no_error,
                proc_2_input_that_is_not_piped_is_refused,
                proc_3_a_deadline_kills_and_keeps_the_output,
                proc_3_the_output_limit_counts_to_the_byte,
                proc_3_a_flood_is_cut,
                proc_4_a_cancelled_command_does_not_start,
                proc_4_cancelling_kills,
                proc_4_cancelling_an_ended_command_is_nothing,
                proc_5_a_child_left_behind_does_not_outlive_its_command,
                proc_6_a_stop_kills_everything,
                proc_6_a_drop_kills_everything,
                proc_4_cancelling_kills_everything,
                proc_6_a_stop_may_be_repeated,
                proc_6_a_wait_may_be_repeated,
                proc_6_a_dropped_wait_loses_nothing,
                proc_8_a_dialogue_is_possible,
                proc_8_a_slow_reader_slows_the_command,
                proc_8_a_signal_reaches_the_command,
                proc_1_every_command_has_a_number_of_its_own,
                own_1_one_too_many_is_busy,
                own_1_a_race_admits_none_too_many,
                own_3_a_stop_of_the_session_kills_commands,
                own_2_a_start_that_races_a_stop_does_not_survive,
                fi_26_a_dropped_start_leaves_nothing_running,
            ]
            policy: [
                bak_6_a_change_raises_the_revision,
                bak_6_a_change_waits_for_commands,
                bak_6_a_stale_revision_starts_nothing,
                bak_6_what_can_not_be_enforced_changes_nothing,
                pol_1_a_session_starts_under_its_policy,
                con_4_the_posture_is_the_same_everywhere,
            ]
            lifecycle: [
                sto_1_the_same_files_have_the_same_key,
                sto_1_every_difference_is_another_key,
                sto_3_two_prewarms_at_once_both_succeed,
                sto_4_fresh_sessions_are_private_copies,
                sto_4_a_reconnect_sees_the_files,
                sto_4_a_mismatch_changes_nothing,
                sto_4_what_is_unknown_is_not_found,
                sto_5_a_second_owner_is_busy,
                sto_5_of_many_owners_at_once_one_wins,
                sto_5_a_dropped_owner_gives_the_session_up,
                sto_6_a_failed_create_leaves_the_session_as_it_was,
                sto_7_a_delete_is_for_good_and_repeatable,
                sto_7_a_delete_after_a_stop_asks_for_the_lease,
                bak_4_stop_and_delete_at_once,
                bak_4_a_dropped_stop_goes_on,
                bak_4_the_state_is_told_until_the_delete,
                bak_7_everything_is_refused_after_a_stop,
                bak_7_a_stream_ends_with_its_session,
            ]
        }
    };
}

/// Makes a test of every property of the contract.
///
/// It takes an expression, which may await, that gives a fresh backend: a [`Subject`] or an
/// `Arc<dyn Backend>`. Each test is named after its property, in a module of its kind, so
/// it belongs into a module of its own. The tests need `tokio` with `macros` and
/// `rt-multi-thread`.
///
/// ```no_run
/// async fn my_backend() -> std::sync::Arc<dyn sandbox_core::Backend> {
///     std::sync::Arc::new(sandbox_testkit::fake::FakeBackend::new())
/// }
///
/// mod contract {
///     sandbox_testkit::contract_tests!(super::my_backend().await);
/// }
/// # fn main() {}
/// ```
#[macro_export]
macro_rules! contract_tests {
    ($make:expr) => {
        $crate::contract_properties!($crate::contract_test_modules, $make);
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! contract_test_modules {
    ({ $make:expr } $($kind:ident: [$($property:ident,)*])*) => {
        async fn contract_subject() -> $crate::contract::Subject {
            $make.into()
        }
        $(
            mod $kind {
                $(
                    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                    async fn $property() {
                        let subject = super::contract_subject().await;
                        $crate::contract::$kind::$property(subject.backend()).await;
                    }
                )*
            }
        )*
    };
}
