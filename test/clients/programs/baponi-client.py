"""The REST client of Baponi: runs code in each of its three ways, cancels a run, and transfers a file."""
import json
import sys
import warnings

import requests
from baponi import Baponi

warnings.simplefilter("ignore")
task = json.load(sys.stdin)
client = Baponi(api_key=task["key"], base_url=task["url"])

inline = client.execute("print(6 * 7)", thread_id="baponi", metadata={"case": "1"}, env_vars={"A": "b"})
with client.execute_stream("import sys; print('out', flush=True); print('err', file=sys.stderr)") as stream:
    events = sorted({event.type for event in stream})
    streamed = stream.get_final_result()
with client.execute_stream("print('out')") as short:
    short.until_done()
with client.reconnect_stream(short.trace_id, after_seq=2) as again:
    resumed = "".join(event.data for event in again if event.type == "output")
limited = client.execute("import time; time.sleep(60)", timeout=1)
waited = client.execute_webhook("print('later')").wait(poll_interval=0.1)
handle = client.execute_webhook("import time; time.sleep(60)")
handle.cancel()
cancelled = handle.wait(poll_interval=0.1)
upload = client.upload_url(path="up.txt", content_length=5, id="baponi")
headers = {header.name: header.value for header in upload.headers}
requests.put(upload.url, data=b"hello", headers=headers, timeout=20).raise_for_status()
download = client.download_url(path="up.txt", id="baponi")

print(
    json.dumps(
        {
            "inline": inline.model_dump(),
            "events": events,
            "streamed": streamed.model_dump(),
            "resumed": resumed,
            "limited": limited.exit_code,
            "waited": [waited.status, waited.stdout],
            "cancelled": cancelled.status,
            "files": [file.path for file in client.list_files(id="baponi")],
            "downloaded": requests.get(download.url, timeout=20).text,
        }
    )
)
