"""A server made with FastMCP: each tool does one thing that a hub has to relay."""

import gc
import sys

# All that is imported stays: looking for garbage in it makes the start slower.
gc.disable()

from fastmcp import Context, FastMCP
from mcp.types import SamplingMessage, TextContent, Tool

server = FastMCP("fast", version="1.0.0", instructions="Ask fast for what is quick.")


@server.tool
def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


@server.tool
async def count(to: int, ctx: Context) -> str:
    """Counts, and tells how far it is."""
    for at in range(1, to + 1):
        await ctx.report_progress(at, to, f"at {at}")
    return f"counted to {to}"


@server.tool
async def confirm(question: str, ctx: Context) -> str:
    """Asks the person."""
    answer = await ctx.elicit(question, bool)
    return f"{answer.action} {getattr(answer, 'data', None)}"


@server.tool
async def visit(url: str, ctx: Context) -> str:
    """Sends the person to a page, and says when they have been there."""
    request = ctx.request_context.request_id
    answer = await ctx.session.elicit_url("Look there", url, "visit-1", related_request_id=request)
    await ctx.session.send_elicit_complete("visit-1", related_request_id=request)
    return answer.action


@server.tool
async def sample(prompt: str, ctx: Context) -> str:
    """Asks the client's model."""
    message = SamplingMessage(role="user", content=TextContent(type="text", text=prompt))
    answer = await ctx.session.create_message(
        [message], max_tokens=7, related_request_id=ctx.request_context.request_id
    )
    return answer.content.text


@server.tool
async def choose(ctx: Context) -> str:
    """Asks the client's model which tool it would use."""
    message = SamplingMessage(role="user", content=TextContent(type="text", text="choose"))
    tools = [Tool(name=name, input_schema={"type": "object"}) for name in ("left", "right")]
    answer = await ctx.session.create_message(
        [message], max_tokens=7, tools=tools, related_request_id=ctx.request_context.request_id
    )
    return f"{answer.stop_reason} {' '.join(f'{block.name} {block.input}' for block in answer.content_as_list)}"


@server.tool
async def roots(ctx: Context) -> list[str]:
    """Asks where the client works."""
    return [str(root.uri) for root in (await ctx.session.list_roots()).roots]


@server.tool
async def log(text: str, ctx: Context) -> str:
    """Logs a line."""
    await ctx.info(text, logger_name="tools")
    return "logged"


@server.tool
def fail(text: str) -> str:
    """Fails."""
    raise ValueError(text)


@server.prompt
def greet(name: str) -> str:
    """Greets somebody."""
    return f"Hello {name} ☃"


@server.resource("fast://plain")
def plain() -> str:
    """A text."""
    return "plain text"


@server.resource("fast://of/{name}")
def of(name: str) -> str:
    """A text about somebody."""
    return f"about {name}"


if __name__ == "__main__":
    print("not protocol", file=sys.stderr)
    server.run(show_banner=False)
