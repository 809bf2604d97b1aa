import asyncio

from langchain_mcp_adapters.callbacks import Callbacks
from langchain_mcp_adapters.client import MultiServerMCPClient

from client import ENDLESS, STREAM, cancel, headers, received, report, task


async def main():
    streamed = []
    started = asyncio.Event()

    async def progress(_progress, _total, message, _context):
        streamed.append(message)
        if message == "started\n":
            started.set()

    server = {"transport": "streamable_http", "url": task["url"], "headers": headers}
    client = MultiServerMCPClient({"glovebox": server}, callbacks=Callbacks(on_progress=progress))
    tools = {tool.name: tool for tool in await client.get_tools()}

    def part(block):
        if block["type"] == "image":
            return {"type": "image", "mimeType": block["mime_type"], "data": block["base64"]}
        return {"type": "text", "text": block["text"]}

    async def call(tool, arguments):
        """The message that an agent would hand to its model."""
        message = await tools[tool].ainvoke({"type": "tool_call", "id": "1", "name": tool, "args": arguments})
        return {"isError": message.status == "error", "parts": [part(block) for block in message.content_blocks]}

    results = [await received(call(each["tool"], each["arguments"])) for each in task["calls"]]
    streamed.clear()
    await tools["sandbox_execute"].ainvoke(STREAM)
    output = "".join(streamed)
    await cancel(tools["sandbox_execute"].ainvoke(ENDLESS), started)
    report(tools=list(tools), results=results, streamed=output)


asyncio.run(main())
