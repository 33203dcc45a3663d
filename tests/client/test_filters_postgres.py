"""Filters that no database takes."""

import pytest

import holdfast


async def test_a_text_with_a_nul_is_a_bad_argument(postgres_url):
    async with holdfast.open(postgres_url) as hf:
        for asked in (
            lambda: hf.runs(agent="a\0"),
            lambda: hf.runs(version="\0"),
            lambda: hf.runs(search="\0"),
            lambda: hf.audit(by="\0"),
            lambda: hf.audit(run="\0"),
            lambda: hf.approvals(run="\0"),
        ):
            with pytest.raises(holdfast.BadArguments, match="NUL"):
                await asked()
