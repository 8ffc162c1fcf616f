"""What new users stumbled over in the reviews of this product, one by one, and the test in which it
is gone. P: a provider's way, D: a developer's, W: a wallet's in the console, U: an auditor's.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Final

import pytest

ROOT = Path(__file__).parents[3] / "tests"
FINDINGS: Final = {
    "P1": ("the key that pays fees is named, checked, funded and watched", (
        "integration/adapter/test_fees.py::test_it_says_so_and_takes_it_back_once_it_is_funded",
        "unit/adapter/test_doctor_codes.py::test_the_code_is_provoked_alone",
        "e2e/test_quickstarts.py::test_every_command_of_a_page_works")),
    "P2": ("a loss is shown as a loss, and what cannot pay its end is not taken", (
        "unit/cli/test_adapter_screen.py::test_a_loss_is_shown_as_one_beside_what_was_earned",
        "integration/market/test_minimum.py::test_a_job_below_the_minimum_is_refused_and_the_offer_says_why",
        "integration/adapter/test_accounts.py::test_an_end_that_costs_more_than_it_brings_is_shown_as_the_loss_that_it_is")),
    "P3": ("when the next payment comes, and the last one's transaction", (
        "unit/cli/test_adapter_screen.py::test_earnings_fit_and_name_each_transaction_whole",
        "unit/cli/test_adapter_screen.py::test_a_loss_is_shown_as_one_beside_what_was_earned")),
    "P4": ("the label that is lacking is named", (
        "unit/matching/test_engine.py::test_the_label_that_is_lacking_is_named",
        "unit/docs/test_words.py::test_every_key_of_the_adapters_file_is_on_the_providers_page")),
    "P5": ("nobody is told 'nobody asked yet' after a lease; a solved alarm goes", (
        "unit/adapter/test_idle.py::test_after_a_lease_nobody_is_told_that_nobody_asked",
        "integration/adapter/test_fees.py::test_it_says_so_and_takes_it_back_once_it_is_funded")),
    "P6": ("prices change while leases run: by command, by SIGHUP", (
        "unit/adapter/test_reprice.py::test_only_the_prices_that_are_named_change",
        "integration/adapter/test_owner.py::test_a_price_that_is_reloaded_is_in_the_next_offer_and_in_no_running_lease",
        "e2e/test_hangup.py::test_a_hangup_reloads_the_prices_and_ends_no_lease")),
    "P7": ("a second adapter is told who has the folder, and to restore nothing", (
        "unit/adapter/test_reprice.py::test_a_second_adapter_is_told_who_has_the_folder",
        "unit/adapter/test_reprice.py::test_a_journal_that_another_holds_is_not_to_be_restored")),
    "P8": ("each wrong key has the remedy that mends it", (
        "unit/adapter/test_reprice.py::test_a_missing_file_is_named",
        "unit/adapter/test_idle.py::test_a_remedy_names_the_key_of_the_file",
        "unit/adapter/test_doctor_codes.py::test_every_code_stands_with_its_remedy_in_the_providers_page")),
    "P9": ("a price that matches no device is said", (
        "unit/adapter/test_doctor_codes.py::test_the_code_is_provoked_alone",)),
    "P10": ("all mistakes of a configuration at once", (
        "unit/adapter/test_reprice.py::test_all_that_is_wrong_with_a_file_is_said_at_once",)),
    "P11": ("the status fits 80 columns, with devices by name and no empty table", (
        "unit/cli/test_adapter_screen.py::test_a_lease_is_one_line_and_its_device_has_its_name",
        "unit/cli/test_adapter_screen.py::test_without_a_lease_no_empty_table_is_drawn")),
    "P12": ("whoever is not listed is told so", (
        "unit/cli/test_adapter_screen.py::test_a_loss_is_shown_as_one_beside_what_was_earned",
        "unit/adapter/test_idle.py::test_a_market_that_is_away_is_the_reason")),
    "P13": ("installed without a checkout; upgraded; uninstalled; one name of its file", (
        "e2e/test_wheel.py::test_the_wheel_is_the_product",
        "unit/docs/test_words.py::test_the_units_and_images_read_the_file_that_the_pages_write")),
    "D1": ("`tally up` under its own env goes on with that market", (
        "unit/cli/test_world.py::test_the_consumers_home_of_a_market_is_that_market",)),
    "D2": ("the API takes and gives the documented job file", (
        "integration/market/test_jobfile_posted.py::test_one_file_in_every_form_is_one_job",)),
    "D3": ("every answer has a shape and an example; clients are generated", (
        "unit/docs/test_answers.py::test_every_answer_of_json_has_an_example_that_is_one",
        "unit/docs/test_answers.py::test_every_shape_and_every_field_is_described")),
    "D4": ("/docs is our own, under every page's policy", (
        "browser/test_console_docs.py::test_no_request_leaves_the_origin_and_the_policy_is_every_pages",)),
    "D5": ("a service's address is printed, and opened", (
        "integration/client/test_services_and_spend.py::test_a_service_is_found_opened_and_searched",)),
    "D6": ("--detach starts nothing that nobody pays", (
        "integration/client/test_detach.py::test_a_job_is_left_to_a_payer_that_runs_and_refused_where_none_does",)),
    "D7": ("the bill has the network's fees", (
        "unit/client/test_network_fees.py::test_the_bill_is_a_sum",
        "browser/test_console.py::test_a_rental_takes_two_signatures_and_the_rest_comes_home")),
    "D8": ("webhooks: kinds checked and listed, tried, logged, on loopback of a devnet", (
        "integration/market/test_webhooks.py::test_a_kind_that_nothing_ever_is_is_refused",
        "integration/market/test_webhooks.py::test_the_page_has_every_kind_and_its_check_of_a_signature_works",
        "integration/market/test_webhooks.py::test_a_test_is_delivered_signed_and_logged_and_tried_again",
        "integration/market/test_webhooks.py::test_this_machine_is_called_on_a_devnet_alone")),
    "D9": ("tables fit 80 columns without broken words", (
        "integration/client/test_screens.py::test_no_listing_breaks_a_word_and_money_is_by_the_hour",)),
    "D10": ("one is one, remedies are a person's, no placeholder", (
        "unit/docs/test_words.py::test_what_was_said_oddly_is_said_nowhere",)),
    "D11": ("`tally channel list` needs no address", (
        "integration/client/test_homecoming.py::test_a_purse_adds_up_and_its_channels_are_ended_kindly",)),
    "D12": ("the pages agree about several machines", (
        "unit/docs/test_words.py::test_the_pages_agree_about_several_machines",)),
    "D13": ("misspelt queries refused, rates and requests named", (
        "integration/market/test_answers_told.py::test_a_misspelt_name_in_the_query_is_refused_with_the_nearest",
        "integration/market/test_answers_told.py::test_each_answer_has_an_id_which_the_problem_has_too",
        "integration/market/test_answers_told.py::test_what_is_left_of_the_rate_is_told")),
    "D14": ("a first file, a job without one, changed keys, a searched log", (
        "unit/cli/test_init.py::test_the_file_is_a_job_as_it_is",
        "unit/cli/test_wanted.py::test_a_job_without_a_file_is_the_job_of_the_file_that_says_the_same",
        "unit/cli/test_wanted.py::test_what_is_set_replaces_what_the_file_says",
        "integration/client/test_services_and_spend.py::test_a_service_is_found_opened_and_searched")),
    "W1": ("a price filter compares what it shows", (
        "integration/market/test_console_supply.py::test_filters_compare_what_they_show_and_cores_are_devices",)),
    "W2": ("cores are devices", (
        "integration/market/test_console_supply.py::test_filters_compare_what_they_show_and_cores_are_devices",)),
    "W3": ("a wallet without money is told the sum and the way to it", (
        "browser/test_console_words.py::test_a_wallet_without_money_is_told_what_the_job_needs_and_for_what",)),
    "W4": ("a channel that settles has no buttons", (
        "integration/market/test_console_channels.py::test_buttons_go_with_what_can_still_be_done",)),
    "W5": ("a closed tab ends no job", (
        "browser/test_console_leaves.py::test_a_closed_tab_ends_no_job_that_was_signed_ahead_for",)),
    "W6": ("pictures of price, use, spend, cost against its ceiling", (
        "unit/console/test_series.py::test_a_days_price_is_the_median_of_what_was_agreed",
        "unit/console/test_series.py::test_money_is_summed_by_day",
        "browser/test_every_page.py::test_every_page_is_as_it_was_and_keeps_to_itself")),
    "W7": ("by the hour first, four digits, the exact amount in the title, dollars beside", (
        "unit/console/test_rendering.py::test_four_digits_are_shown_and_the_exact_amount_is_in_the_title",
        "integration/market/test_price_source.py::test_a_source_is_shown_with_its_time_and_charges_nobody")),
    "W8": ("providers with name, uptime, earnings, losses, here now", (
        "integration/market/test_console_supply.py::test_filters_compare_what_they_show_and_cores_are_devices",
        "integration/market/test_series.py::test_the_api_shows_name_uptime_and_use")),
    "W9": ("a device has the memory that it is sold with", (
        "unit/console/test_rendering.py::test_a_device_has_the_memory_that_it_is_sold_with",)),
    "W10": ("an end is said once; the log is searched, copied, saved", (
        "unit/console/test_rendering.py::test_an_end_is_said_once_in_words",
        "browser/test_console.py::test_a_rental_takes_two_signatures_and_the_rest_comes_home")),
    "W11": ("ids are copied; explorers linked where there are some", (
        "browser/test_console.py::test_a_rental_takes_two_signatures_and_the_rest_comes_home",)),
    "W12": ("presets, and job files in and out of the form", (
        "browser/test_console_jobfile.py::test_presets_fill_the_form_also_for_whoever_only_looks",
        "browser/test_console_jobfile.py::test_a_job_file_goes_through_the_form_and_loses_nothing")),
    "W13": ("an end is asked for twice; 'why' stands where one looks", (
        "browser/test_console.py::test_a_rental_takes_two_signatures_and_the_rest_comes_home",
        "browser/test_console_words.py::test_signing_in_is_said_in_plain_words_and_the_market_page_asks_why")),
    "W14": ("signing in is said in plain words", (
        "browser/test_console_words.py::test_signing_in_is_said_in_plain_words_and_the_market_page_asks_why",)),
    "W15": ("pictures are today's, and 404 says what it is", (
        "browser/test_every_page.py::test_the_pictures_are_those_that_the_docs_show",
        "browser/test_console_words.py::test_signing_in_is_said_in_plain_words_and_the_market_page_asks_why")),
    "U1": ("a kept channel serves the next command and ends by itself", (
        "integration/client/test_kept.py::test_one_channel_serves_a_purses_commands_one_after_the_other",
        "e2e/test_keep.py::test_a_kept_channel_serves_the_next_command_and_is_ended_by_its_provider")),
    "U2": ("`tally up` under its own env goes on with that market", (
        "unit/cli/test_world.py::test_the_consumers_home_of_a_market_is_that_market",)),
    "U3": ("two commands of one purse at once", (
        "integration/client/test_two_at_once.py::test_two_commands_at_once_both_run_their_job",
        "integration/client/test_never_opened.py::test_an_open_that_was_refused_for_good_is_over_once_its_lease_is")),
    "U4": ("reading commands import nothing that pays", (
        "unit/cli/test_start.py::test_reading_commands_do_not_wait_for_what_builds_transactions",
        "unit/cli/test_start.py::test_a_command_that_pays_imports_them_once_its_market_answered")),
    "U5": ("nothing is broken over lines, in a pipe or a terminal", (
        "unit/cli/test_tables.py::test_nothing_is_broken_over_lines",
        "unit/cli/test_tables.py::test_a_pipe_gets_one_line_a_row")),
    "U6": ("`tally channel list` finds the purse's own", (
        "integration/client/test_homecoming.py::test_a_purse_adds_up_and_its_channels_are_ended_kindly",)),
    "U7": ("all problems of a file; one style of help; what a killed client's channel holds", (
        "unit/cli/test_errors.py::test_all_that_is_wrong_with_a_job_file_is_said_a_line_each",
        "unit/docs/test_words.py::test_every_commands_help_is_plain",
        "integration/client/test_homecoming.py::test_a_purse_adds_up_and_its_channels_are_ended_kindly")),
}  # fmt: skip
LETTERS: Final = {"P": 13, "D": 14, "W": 15, "U": 7}


def functions(path: Path) -> set[str]:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {one.name for one in ast.parse(path.read_text("utf-8")).body if isinstance(one, kinds)}


def test_every_finding_is_listed() -> None:
    assert list(FINDINGS) == [
        f"{kind}{n}" for kind, many in LETTERS.items() for n in range(1, many + 1)
    ]


@pytest.mark.parametrize("name", FINDINGS)
def test_the_tests_of_a_finding_exist(name: str) -> None:
    gone, tests = FINDINGS[name]
    assert gone and tests
    for test in tests:
        path, _, function = test.partition("::")
        assert function in functions(ROOT / path), f"{name}: no {test}"
