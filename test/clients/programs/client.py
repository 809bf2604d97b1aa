"""What the Python programs have in common: the task that they read, and the report that they print."""
import asyncio
import json
import sys

STREAM = {"language": "bash", "code": "echo one; sleep 0.2; echo two; sleep 0.2"}
ENDLESS = {"language": "bash", "code": "echo started; sleep 60"}

task = json.load(sys.stdin)
headers = {"Authorization": f"Bearer {task['key']}"} if task["key"] else {}


def parts(content):
    """Content items of MCP as the test compares them."""
    return [
        {"type": "image", "mimeType": item["mimeType"], "data": item["data"]}
        if item["type"] == "image"
        else {"type": "text", "text": item.get("text") or json.dumps(item)}
        for item in content
    ]


async def received(call):
    """What a call gave to the program, or the exception that it raised."""
    try:
        return await call
    except Exception as error:
        return {"thrown": True, "parts": [{"type": "text", "text": str(error)}]}


async def cancel(call, started):
    """Cancels a call as soon as its run has started, the way asyncio cancels."""
    running = asyncio.ensure_future(call)
    await asyncio.wait_for(started.wait(), 20)
    running.cancel()
    await asyncio.wait([running])


def report(**fields):
    print(json.dumps(fields))
