"""The ledger's no, with the name that cardano-ledger has for it: clients look for names, and the
engine gives sentences.
"""

from __future__ import annotations

import re

# The engine's sentence (a pattern) and the ledger's name, most particular first. Source: the Conway
# rules of cardano-ledger.
_NAMES = (
    (
        r"\(input position \d+\)|requirement failed|Unknown key \d+ in|cannot be zero",
        "DecoderFailure",
    ),
    (r"Missing .*inputs? in UTxO state|Missing inputs, collateral", "BadInputsUTxO"),
    (r"Value not conserved", "ValueNotConservedUTxO"),
    (r"is less than minimum required", "FeeTooSmallUTxO"),
    (r"no collateral inputs provided", "NoCollateralInputs"),
    (r"is insufficient", "InsufficientCollateral"),
    (r"does not match expected", "IncorrectTotalCollateralField"),
    (r"Too many collateral inputs", "TooManyCollateralInputs"),
    (r"collateral", "ScriptsNotPaidUTxO"),
    (r"outside the validity interval", "OutsideValidityIntervalUTxO"),
    (r"outputs are too small", "BabbageOutputTooSmallUTxO"),
    (r"exceed maximum value storage size", "OutputTooBigUTxO"),
    (r"^Transaction size", "MaxTxSizeUTxO"),
    (r"exceed the maximum", "ExUnitsTooBigUTxO"),
    (r"attributes too big", "OutputBootAddrAttrsTooBig"),
    (r"intersects with reference inputs", "BabbageNonDisjointRefInputs"),
    (r"Empty transaction inputs", "InputSetEmptyUTxO"),
    (r"Missing key hashes", "MissingVKeyWitnessesUTXOW"),
    (r"Invalid verified signatures", "InvalidWitnessesUTXOW"),
    (r"Wrong network id", "WrongNetworkInTxBody"),
    (r"Wrong network address", "WrongNetwork"),
    (r"Wrong network in withdrawals", "WrongNetworkWithdrawal"),
    (r"Invalid auxiliary data hash", "ConflictingMetadataHash"),
    (r"Missing auxiliary data hash", "MissingTxBodyMetadataHash"),
    (r"Missing auxiliary data", "MissingTxMetadata"),
    (r"Invalid auxiliary data", "InvalidMetadata"),
    (r"Missing or extra script hashes.*extra[^:]*: Set\([^)]", "ExtraneousScriptWitnessesUTXOW"),
    (r"Missing or extra script hashes", "MissingScriptWitnessesUTXOW"),
    (r"Invalid native scripts", "ScriptWitnessNotValidatingUTXOW"),
    (r"Ill-formed scripts", "MalformedScriptWitnesses"),
    (r"already registered credentials: Set\([^)]", "StakeKeyRegisteredDELEG"),
    (r"not registered credentials: Set\([^)]", "StakeKeyNotRegisteredDELEG"),
    (r"Stake certificates", "StakeKeyHasNonZeroAccountBalanceDELEG"),
    (r"Pool certificate", "StakePoolNotRegisteredOnKeyPOOL"),
    (r"Withdrawals validation", "WithdrawalsNotInRewardsCERTS"),
    (r"Invalid script data hash", "PPViewHashesDontMatch"),
    (r"extra redeemers: Set\([^)]", "ExtraRedeemers"),
    (r"missing redeemers", "MissingRedeemers"),
    (r"inputs with missing datum hashes: (Tree)?Set\([^)]", "UnspendableUTxONoDatumHash"),
    (r"unmatched datum hashes: (Tree)?Set\([^)]", "MissingRequiredDatums"),
    (r"Datums validation", "NotAllowedSupplementalDatums"),
    (
        r"Out of budget|Error evaluated|invalid flag|script validation failed",
        "ValidationTagMismatch",
    ),
)


class LedgerRefusal(Exception):
    """The ledger does not accept a transaction. reason: its name for it and the words; logs: traces
    of the failing script.
    """

    code = "ledger_refused"

    def __init__(self, reason: str, logs: list[str]) -> None:
        super().__init__(reason)
        self.reason = reason
        self.logs = logs

    @property
    def told(self) -> str:
        """Reason and traces in one text: Blockfrost's errors have no other place for them."""
        return f"{self.reason}; traces: {', '.join(self.logs)}" if self.logs else self.reason


def named(sentence: str) -> str:
    """The engine's sentence after the ledger's name for what it says; unknown ones stay as they
    are.
    """
    for pattern, name in _NAMES:
        if re.search(pattern, sentence, re.DOTALL):
            return f"{name}: {sentence}"
    return sentence
