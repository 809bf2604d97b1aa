import asyncio

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from client import ENDLESS, STREAM, cancel, headers, parts, received, report, task


async def main():
    async with httpx2.AsyncClient(headers=headers, timeout=60) as http:
        async with Client(streamable_http_client(task["url"], http_client=http)) as client:
            tools = [tool.name for tool in (await client.list_tools()).tools]

            async def call(tool, arguments):
                result = await client.call_tool(tool, arguments)
                answer = result.model_dump(by_alias=True, mode="json")
                return {"isError": answer["isError"], "parts": parts(answer["content"])}

            results = [await received(call(each["tool"], each["arguments"])) for each in task["calls"]]
            streamed = []
            started = asyncio.Event()

            async def progress(_progress, _total, message):
                streamed.append(message)

            async def begin(_progress, _total, message):
                started.set()

            await client.call_tool("sandbox_execute", STREAM, progress_callback=progress)
            await cancel(client.call_tool("sandbox_execute", ENDLESS, progress_callback=begin), started)
            report(tools=tools, results=results, streamed="".join(streamed), protocol=client.protocol_version)


asyncio.run(main())
