"""
A client made with the Python SDK of either major version: prints the listings as one line of JSON.

    lists.py ERA COMMAND ARGUMENT...

It speaks the protocol of ERA (legacy, modern); the first major version supports only legacy.
"""

import asyncio
import json
import os
import sys

import mcp
from mcp import StdioServerParameters

ERA, COMMAND, *ARGUMENTS = sys.argv[1:]


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


async def main() -> None:
    server = StdioServerParameters(command=COMMAND, args=ARGUMENTS, env=dict(os.environ))
    if hasattr(mcp, "Client"):
        mode = "legacy" if ERA == "legacy" else "auto"
        async with mcp.Client(server, mode=mode, read_timeout_seconds=20) as client:
            told = await lists_of(client)
            told["version"] = client.protocol_version
    else:
        async with mcp.stdio_client(server) as streams, mcp.ClientSession(*streams) as client:
            met = await client.initialize()
            told = await lists_of(client)
            told["version"] = met.protocolVersion
    print(json.dumps(told))


asyncio.run(main())
