"""Who pays the chain what for a job, and how small it may be."""

from __future__ import annotations

from marketplace.domain.money.chain_fees import ChainFees, job_fees

FEES = ChainFees(open=176, top_up=234, end=238, end_together=50)


def test_a_job_on_a_channel_of_its_own_pays_its_open_and_must_be_worth_both() -> None:
    told = job_fees(FEES, 0, opens=True)
    assert (told.consumer, told.provider, told.together) == (176, 238, 50)
    assert told.smallest == 176 + 238
    assert job_fees(FEES, 1_000, opens=True).smallest == 1_000  # its provider wants more


def test_on_an_open_channel_any_job_makes_sense_that_is_worth_its_top_up() -> None:
    told = job_fees(FEES, 1_000, opens=False)
    assert (told.consumer, told.smallest) == (0, 0)
    topped = job_fees(FEES, 1_000, opens=False, topped_up=True)
    assert (topped.consumer, topped.smallest) == (234, 234)
