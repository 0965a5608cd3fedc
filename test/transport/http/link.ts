import assert from "node:assert/strict";
import { it as test } from "node:test";
import { HubError } from "../../../src/base/errors.ts";
import type { HttpTarget } from "../../../src/transport/http/target.ts";
import { HttpTransportRecorder, withHandshake } from "../../fixtures/http-transport-recorder.ts";
import { RawHttpServer, type RawHttpRequest } from "../../fixtures/raw-http-server.ts";
import { poll } from "../../harness/wait.ts";

type Handler = (received: RawHttpRequest) => void;

/** A link to a raw HTTP server. */
export interface Link {
  readonly server: RawHttpServer;
  readonly witness: HttpTransportRecorder;
  /** Sends a request. @returns the text of its answer, or `CODE: MESSAGE` of its error */
  ask(method?: string): Promise<string>;
  /** Sends a request, by default `a`, so often, one after the other; it must be answered by `respondJson`. */
  assertOk(method?: string, count?: number): Promise<void>;
  /** Closes the link, and waits until the server has no connection left. */
  end(): Promise<void>;
}

/** Opens links, all of which are ended after the test. */
export interface Links {
  /** Starts a server. */
  serve(handle: Handler): Promise<RawHttpServer>;
  /** Starts a server, and opens a link to it. */
  open(handle: Handler, more?: Partial<HttpTarget>): Promise<Link>;
  /** The same after the handshake of the legacy era, which is not passed to `handle`; `session` "": there is none. */
  meet(handle: Handler, more?: Partial<HttpTarget>, session?: string): Promise<Link>;
}

/** A test with links over HTTP. Afterwards nothing may be left of them, and each must have told its end once. */
export function it(
  what: string,
  run: (links: Links) => Promise<void>,
  options: { readonly timeout?: number; readonly skip?: string | false } = {},
): void {
  void test(what, options, async () => {
    const servers: RawHttpServer[] = [];
    const witnesses: HttpTransportRecorder[] = [];
    const serve = async (handle: Handler): Promise<RawHttpServer> => {
      const server = await RawHttpServer.start(handle);
      servers.push(server);
      return server;
    };
    const link = (server: RawHttpServer, witness: HttpTransportRecorder): Link => {
      witnesses.push(witness);
      const ask = (method = "a"): Promise<string> => askOver(witness, method);
      return {
        server,
        witness,
        ask,
        async assertOk(method, count = 1) {
          for (let n = 0; n < count; n++) assert.match(await ask(method), /"ok"/);
        },
        async end() {
          await witness.transport.close();
          await server.allClosed();
        },
      };
    };
    try {
      await run({
        serve,
        async open(handle, more) {
          const server = await serve(handle);
          return link(server, await HttpTransportRecorder.open(server, more));
        },
        async meet(handle, more, session) {
          const server = await serve(withHandshake(handle, session));
          return link(server, await HttpTransportRecorder.openInitialized(server, more));
        },
      });
    } finally {
      for (const { transport } of witnesses) await transport.close();
      for (const server of servers) await server.allClosed();
    }
    for (const { causes } of witnesses) assert.equal(causes.length, 1, "the end was told once");
  });
}

async function askOver(witness: HttpTransportRecorder, method: string): Promise<string> {
  return textOf(await witness.sendRequest(method).outcome);
}

export const textOf = (outcome: string | HubError): string =>
  outcome instanceof HubError ? `${outcome.code}: ${outcome.message}` : outcome;

/** Waits until this holds. */
export const until = (holds: () => boolean): Promise<true> =>
  poll(
    5000,
    () => String(holds),
    () => holds() || undefined,
  );
