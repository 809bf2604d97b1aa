"""An agent whose model is the scripted one; the test reads there what the model received."""
import asyncio

from agno.agent import Agent
from agno.models.openai import OpenAIChat
from agno.tools.mcp import MCPTools

from client import headers, report, task


async def main():
    async with MCPTools(url=task["url"], transport="streamable-http", headers=headers) as tools:
        model = OpenAIChat(id="scripted", api_key="none", base_url=f"{task['modelUrl']}/v1")
        agent = Agent(model=model, tools=[tools], telemetry=False)
        answer = await agent.arun("run it")
        report(finalOutput=answer.content)


asyncio.run(main())
