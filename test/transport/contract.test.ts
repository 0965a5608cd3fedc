import { randomUUID } from "node:crypto";
import { createServer, type Socket } from "node:net";
import { fileURLToPath } from "node:url";
import { LineReader } from "../../src/jsonrpc/line-reader.ts";
import { openStdioTransport } from "../../src/transport/stdio.ts";
import { transportContract, type TransportPair, type Peer } from "../contract/transport.ts";
import { MessageQueue } from "../fixtures/message-queue.ts";
import { waitFor } from "../harness/wait.ts";
import { pidsWithEnv } from "../harness/processes.ts";

async function stdio(): Promise<TransportPair> {
  const limit = 4 * 1024 * 1024;
  const mark = randomUUID();
  const inbox = new MessageQueue();
  const answers: ((bytes: number) => void)[] = [];
  const { promise: connection, resolve: connected } = Promise.withResolvers<Socket>();
  const server = createServer((socket) => {
    const splitter = new LineReader(64 * limit, {
      line(bytes) {
        const event = JSON.parse(bytes.toString()) as { got?: string; unsent?: number };
        if (event.got !== undefined) inbox.push(event.got);
        if (event.unsent !== undefined) answers.shift()?.(event.unsent);
      },
      oversized: () => {},
    });
    socket.on("data", (chunk) => splitter.push(Buffer.from(chunk)));
    socket.on("error", () => {});
    connected(socket);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const address = server.address();
  const port = typeof address === "object" ? String(address?.port) : "";
  const order = (what: object): void => {
    void connection.then((socket) => socket.write(`${JSON.stringify(what)}\n`));
  };
  const peer: Peer = {
    send: (texts, cut) => order({ do: "send", texts, cut }),
    receive: (count) => inbox.take(count),
    get queuedCount() {
      return inbox.size;
    },
    unreadBytes: () =>
      new Promise((resolve) => {
        answers.push(resolve);
        order({ do: "unsent" });
      }),
    stopReading: () => order({ do: "stop" }),
    startReading: () => order({ do: "start" }),
    end: () => order({ do: "end" }),
    async allClosed() {
      server.close();
      await waitFor("the end of the child", () => pidsWithEnv(mark).length === 0 || undefined);
    },
  };
  const link = openStdioTransport({
    server: "peer",
    command: "node",
    args: [fileURLToPath(new URL("../fixtures/processes/stdio-peer.mjs", import.meta.url)), port],
    env: { MARK: mark },
    hubEnv: process.env,
    cwd: undefined,
    maxMessage: limit,
    secrets: [],
  });
  return { transport: link, peer, maxMessage: limit };
}

transportContract("stdioLink()", stdio);
