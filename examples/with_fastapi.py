"""FastAPI: endpoints that are no coroutines run in threads, which share one client."""

import asyncio
import tempfile
from contextlib import asynccontextmanager

import httpx
from fastapi import FastAPI, Request

import fmq


def make_app(path):
    @asynccontextmanager
    async def lifespan(app):
        with fmq.connect(path) as app.state.engine:  # one client for each worker of uvicorn
            yield

    app = FastAPI(lifespan=lifespan)

    @app.post("/orders/{name}", status_code=201)
    def order(name: str, request: Request):
        return {"offset": request.app.state.engine.send("orders", name.encode()).offset}

    return app


async def main(home):
    app = make_app(f"{home}/queue")
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://shop") as client,
    ):
        for name in ("ada", "bob"):
            print(name, (await client.post(f"/orders/{name}")).json())


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as home, fmq.open(f"{home}/queue") as own, own.serve():
        asyncio.run(main(home))
