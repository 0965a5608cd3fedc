import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";

/** Lets one process at a time do its work: whoever connects waits for a byte, and its turn lasts until it disconnects. */
export class Turns {
  readonly #server = createServer((socket) => this.#add(socket));
  readonly #waiting: Socket[] = [];
  #current: Socket | undefined;

  /** Where it listens on 127.0.0.1. */
  async listen(): Promise<number> {
    this.#server.listen(0, "127.0.0.1");
    await once(this.#server, "listening");
    return (this.#server.address() as AddressInfo).port;
  }

  close(): void {
    this.#server.close();
    for (const socket of this.#waiting) socket.destroy();
  }

  #add(socket: Socket): void {
    socket.on("error", () => socket.destroy()).on("close", () => this.#end(socket));
    // Without a reader its end is not noticed.
    socket.resume();
    this.#waiting.push(socket);
    this.#next();
  }

  #end(socket: Socket): void {
    const at = this.#waiting.indexOf(socket);
    if (at >= 0) this.#waiting.splice(at, 1);
    if (socket !== this.#current) return;
    this.#current = undefined;
    this.#next();
  }

  #next(): void {
    if (this.#current !== undefined) return;
    this.#current = this.#waiting.shift();
    this.#current?.write(".");
  }
}

/** Waits until it is this process's turn, which ends with the process. */
export async function waitForTurn(port: number): Promise<void> {
  const socket = connect(port, "127.0.0.1");
  await once(socket, "data");
  socket.unref();
}
