import asyncio

from fastmcp import Client
from fastmcp.client.transports import StreamableHttpTransport

from client import ENDLESS, STREAM, cancel, headers, parts, received, report, task


async def main():
    async with Client(StreamableHttpTransport(task["url"], headers=headers)) as client:
        tools = [tool.name for tool in await client.list_tools()]

        async def call(tool, arguments):
            result = await client.call_tool(tool, arguments)
            content = [item.model_dump(by_alias=True, mode="json") for item in result.content]
            return {"isError": result.is_error, "parts": parts(content)}

        results = [await received(call(each["tool"], each["arguments"])) for each in task["calls"]]
        streamed = []
        started = asyncio.Event()

        async def progress(_progress, _total, message):
            streamed.append(message)

        async def begin(_progress, _total, message):
            started.set()

        await client.call_tool("sandbox_execute", STREAM, progress_handler=progress)
        await cancel(client.call_tool("sandbox_execute", ENDLESS, progress_handler=begin), started)
        report(tools=tools, results=results, streamed="".join(streamed))


asyncio.run(main())
