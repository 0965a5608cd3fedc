"""
Clients made with the Python SDK: each uses every feature of server.py, which is the server `fast` of a hub.

    client.py [[NAME, ERA, URL], [NAME, ERA, COMMAND, ARGUMENT...], ...]

The argument is JSON. All run at the same time. Each speaks the protocol of its ERA (legacy, modern), and puts its NAME
into its answers. Prints the results as one line of JSON.
"""

import asyncio
import json
import os
import sys
from collections.abc import Awaitable

import mcp.types as types
from mcp import Client, MCPError, StdioServerParameters


class Person:
    """Who answers what a server asks, and notes all that comes."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.logs: list[object] = []
        self.asked: list[str] = []
        self.completed: list[str] = []

    async def sample(
        self, _context, params: types.CreateMessageRequestParams
    ) -> types.CreateMessageResult | types.CreateMessageResultWithTools:
        self.asked.append(f"sample {params.messages[0].content.text}")
        if params.tools:
            use = types.ToolUseContent(
                type="tool_use", id="use-1", name=params.tools[-1].name, input={"exact": 1.5}
            )
            return types.CreateMessageResultWithTools(
                role="assistant", content=[use], model="none", stop_reason="toolUse"
            )
        content = types.TextContent(type="text", text=f"sampled by {self.name}")
        return types.CreateMessageResult(role="assistant", content=content, model="none")

    async def elicit(self, _context, params: types.ElicitRequestParams) -> types.ElicitResult:
        self.asked.append(f"{params.mode} {params.message}")
        content = None if params.mode == "url" else {"value": True}
        return types.ElicitResult(action="accept", content=content)

    async def list_roots(self, _context) -> types.ListRootsResult:
        self.asked.append("roots")
        return types.ListRootsResult(roots=[types.Root(uri=f"file:///{self.name}")])

    async def hear_log(self, params: types.LoggingMessageNotificationParams) -> None:
        self.logs.append([params.level, params.logger, params.data])

    async def hear(self, message: object) -> None:
        if isinstance(message, types.ElicitCompleteNotification):
            self.completed.append(message.params.elicitation_id)


def text_of(result: types.CallToolResult) -> str:
    return "\n".join(block.text for block in result.content)


async def refusal(work: Awaitable[object]) -> list[object]:
    try:
        await work
    except MCPError as error:
        return [error.error.code, error.error.message]
    return []


async def use(client: Client, person: Person, era: str) -> dict[str, object]:
    progress: list[list[float]] = []

    async def step(at: float, total: float | None, message: str | None) -> None:
        progress.append([at, total, message])

    tools = await client.list_tools()
    if era == "legacy":
        await client.set_logging_level("info")
    called = {
        "add": await client.call_tool("fast__add", {"a": 2, "b": 40}),
        "count": await client.call_tool("fast__count", {"to": 3}, progress_callback=step),
        "confirm": await client.call_tool("fast__confirm", {"question": "Sure?"}),
        "visit": await client.call_tool("fast__visit", {"url": "https://example.com"}),
        "sample": await client.call_tool("fast__sample", {"prompt": f"for {person.name}"}),
        "choose": await client.call_tool("fast__choose"),
        "roots": await client.call_tool("fast__roots"),
        "log": await client.call_tool("fast__log", {"text": f"line for {person.name}"}),
        "fail": await client.call_tool("fast__fail", {"text": "as told"}),
    }
    prompts = await client.list_prompts()
    prompt = await client.get_prompt("fast__greet", {"name": person.name})
    resources = await client.list_resources()
    templates = await client.list_resource_templates()
    return {
        "version": client.protocol_version,
        "tools": [tool.name for tool in tools.tools],
        "called": {name: text_of(result) for name, result in called.items()},
        "failed": [name for name, result in called.items() if result.is_error],
        "structured": called["add"].structured_content,
        "progress": progress,
        "asked": person.asked,
        "completed": person.completed,
        "logs": person.logs,
        "prompts": [prompt.name for prompt in prompts.prompts],
        "prompt": prompt.messages[0].content.text,
        "resources": [str(resource.uri) for resource in resources.resources],
        "templates": [template.uri_template for template in templates.resource_templates],
        "read": [
            (await client.read_resource(uri)).contents[0].text
            for uri in ("fast://plain", "fast://of/me")
        ],
        "unknown": await refusal(client.call_tool("fast__none")),
    }


async def run(name: str, era: str, target: str, *arguments: str) -> dict[str, object]:
    person = Person(name)
    async with Client(
        StdioServerParameters(command=target, args=list(arguments), env=dict(os.environ))
        if arguments
        else target,
        sampling_callback=person.sample,
        sampling_capabilities=types.SamplingCapability(tools=types.SamplingToolsCapability()),
        elicitation_callback=person.elicit,
        list_roots_callback=person.list_roots,
        logging_callback=person.hear_log,
        log_level="info",
        message_handler=person.hear,
        mode="legacy" if era == "legacy" else "auto",
        client_info=types.Implementation(name=name, version="1.0.0"),
        read_timeout_seconds=60,
    ) as client:
        return await use(client, person, era)


async def main() -> None:
    print(json.dumps(await asyncio.gather(*(run(*words) for words in json.loads(sys.argv[1])))))


asyncio.run(main())
