"""
A client made with the Python SDK, which ends its session at the first byte that is not UTF-8: calls a server that sends
such bytes, and then another one. Prints the results as one line of JSON.

    strict_utf8.py COMMAND ARGUMENT...
"""

import asyncio
import json
import os
import sys

from mcp import Client, StdioServerParameters

COMMAND, *ARGUMENTS = sys.argv[1:]


async def main() -> None:
    target = StdioServerParameters(command=COMMAND, args=ARGUMENTS, env=dict(os.environ))
    async with Client(target, mode="legacy", read_timeout_seconds=20) as client:
        tools = (await client.list_tools()).tools
        raw = await client.call_tool("raw__raw", {"hex": "ff"})
        good = await client.call_tool("good__echo", {"still": "there"})
    [description] = [tool.description for tool in tools if tool.name == "raw__raw"]
    print(
        json.dumps(
            {
                "description": description,
                "raw": raw.content[0].text,
                "good": good.content[0].text,
            }
        )
    )


asyncio.run(main())
