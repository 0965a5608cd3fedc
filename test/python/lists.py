"""
Clients made with the Python SDK of either major version: prints the listings of all as one line of JSON.

    lists.py [[ERA, URL], ...]

The argument is JSON. Each speaks the protocol of its ERA (legacy, modern); the first major version supports only legacy.
"""

import asyncio
import json
import sys

import mcp


async def lists_of(client) -> dict[str, list[str]]:
    tools = await client.list_tools()
    prompts = await client.list_prompts()
    resources = await client.list_resources()
    templates = await client.list_resource_templates()
    found = templates.model_dump(mode="json", by_alias=True)["resourceTemplates"]
    return {
        "tools": [tool.name for tool in tools.tools],
        "prompts": [prompt.name for prompt in prompts.prompts],
        "resources": [str(resource.uri) for resource in resources.resources],
        "resourceTemplates": [template["uriTemplate"] for template in found],
    }


async def run(era: str, url: str) -> dict[str, object]:
    if hasattr(mcp, "Client"):
        mode = "legacy" if era == "legacy" else "auto"
        async with mcp.Client(url, mode=mode, read_timeout_seconds=20) as client:
            return {**await lists_of(client), "version": client.protocol_version}
    from mcp.client.streamable_http import streamablehttp_client

    async with (
        streamablehttp_client(url) as (reads, writes, _),
        mcp.ClientSession(reads, writes) as client,
    ):
        met = await client.initialize()
        return {**await lists_of(client), "version": met.protocolVersion}


async def main() -> None:
    print(json.dumps(await asyncio.gather(*(run(*words) for words in json.loads(sys.argv[1])))))


asyncio.run(main())
