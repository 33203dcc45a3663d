"""A program that copies a store, as it is named, to a file; a test kills it on the way."""

import asyncio
import sys

import holdfast


async def main(url: str, path: str) -> None:
    async with holdfast.open(url) as hf:
        await hf.backup(path)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
