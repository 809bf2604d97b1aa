"""Plain requests that read server-sent events line by line, without a library for MCP and without initializing anything."""
import asyncio
import json

import requests

from client import STREAM, headers, parts, received, report, task

accepted = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream", **headers}


def messages(method, params):
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    with requests.post(task["url"], headers=accepted, json=body, stream=True, timeout=60) as response:
        if "json" in response.headers["Content-Type"]:
            answer = response.json()
            if "jsonrpc" not in answer:
                raise RuntimeError(answer["message"])
            yield answer
            return
        for line in response.iter_lines():
            decoded = line.decode("utf-8")
            if decoded.startswith("data: "):
                yield json.loads(decoded[6:])


def answer(method, params):
    *_, last = messages(method, params)
    if "error" in last:
        raise RuntimeError(last["error"]["message"])
    return last["result"]


async def call(tool, arguments):
    result = answer("tools/call", {"name": tool, "arguments": arguments})
    return {"isError": result.get("isError", False), "parts": parts(result["content"])}


async def main():
    tools = [tool["name"] for tool in answer("tools/list", {})["tools"]]
    results = [await received(call(each["tool"], each["arguments"])) for each in task["calls"]]
    watched = {"name": "sandbox_execute", "arguments": STREAM, "_meta": {"progressToken": 1}}
    sent = [message["params"]["message"] for message in messages("tools/call", watched) if "method" in message]
    report(tools=tools, results=results, streamed="".join(sent))


asyncio.run(main())
