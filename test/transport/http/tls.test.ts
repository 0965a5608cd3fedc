import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { type AddressInfo, connect, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { HubError } from "../../../src/base/errors.ts";
import { runtimeName } from "../../../src/base/runtime.ts";
import { makeFetch } from "../../../src/transport/http-client/fetch.ts";
import type { ConnectOptions } from "../../../src/transport/http-client/open-socket.ts";
import { makeCertificate } from "../../fixtures/certificates.ts";
import { RawHttpServer, type RawHttpRequest } from "../../fixtures/raw-http-server.ts";
import { targetOf } from "../../fixtures/http-transport-pair.ts";
import { respondJson, HttpTransportRecorder } from "../../fixtures/http-transport-recorder.ts";

const DAY = 86_400_000;
const HERE = ["localhost", "127.0.0.1"];
const authority = makeCertificate({ name: "Test Authority", isAuthority: true });
const here = { name: "here", hosts: HERE, issuer: authority };
const good = makeCertificate(here);
const daysFromNow = (days: number): Date => new Date(Date.now() + days * DAY);
const expired = makeCertificate({ ...here, from: daysFromNow(-3), until: daysFromNow(-1) });
const early = makeCertificate({ ...here, from: daysFromNow(1) });
const elsewhere = makeCertificate({ name: "there", hosts: ["example.com"], issuer: authority });
const alone = makeCertificate({ name: "alone", hosts: HERE });

function serve({ cert, key }: typeof good, handle = hello): Promise<RawHttpServer> {
  return RawHttpServer.start(handle, { cert, key });
}

const hello = (received: RawHttpRequest): void => received.respond(200, {}, "hello");

function urlOf({ port }: RawHttpServer, host = "localhost"): string {
  return `https://${host}:${port}/`;
}

/** The error of a request, with this code. */
async function failure(url: string, parts: Partial<ConnectOptions> = {}, code = "tlsFailed") {
  const error = await makeFetch({ ca: undefined, env: {}, ...parts })(url).then(
    () => undefined,
    (thrown: unknown) => thrown,
  );
  assert.ok(error instanceof HubError, String(error));
  assert.match(error.code, new RegExp(`^(?:${code})$`));
  return error.message;
}

describe("TLS", () => {
  for (const host of HERE) {
    it(`reaches ${host} with a certificate that the manifest names`, async () => {
      const server = await serve(good);
      const response = await makeFetch({ ca: authority.cert, env: {} })(urlOf(server, host));
      assert.equal(await response.text(), "hello");
      await server.allClosed();
    });
  }

  for (const [what, certificate, words] of [
    ["has expired", expired, /has expired: its operator/],
    ["is not valid yet", early, /not valid yet: is this machine's clock right/],
    ["is for another name", elsewhere, /for another name: is the URL right/],
  ] as const) {
    it(`says that a certificate ${what}`, async () => {
      const server = await serve(certificate);
      const message = await failure(urlOf(server), { ca: authority.cert });
      // One of the runtimes does not say what is wrong with a certificate.
      assert.match(message, runtimeName === "deno" ? /expired|another name/ : words);
      assert.ok(message.includes(`localhost:${server.port}`));
      await server.allClosed();
    });
  }

  for (const [what, certificate] of [
    ["of nobody who is known", good],
    ["that is self-signed", alone],
  ] as const) {
    it(`does not trust a certificate ${what}, and says how one could`, async () => {
      const server = await serve(certificate);
      const message = await failure(urlOf(server));
      assert.match(message, /self-signed|this machine does not trust/);
      assert.match(message, /"ca" in the manifest, or NODE_EXTRA_CA_CERTS/);
      assert.equal(server.requests.length, 0);
      await server.allClosed();
    });
  }

  it("says that a port speaks plain HTTP", async () => {
    const server = createServer((socket) => {
      socket.on("error", () => {});
      socket.once("data", () => socket.end("HTTP/1.1 400 Bad Request\r\n\r\n"));
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    const { port } = server.address() as AddressInfo;
    assert.match(await failure(`https://localhost:${port}/`), /does not use TLS.*http:\/\//);
    server.close();
  });

  it("says that what should be certificates is none", async () => {
    await failure("https://localhost:1/", { ca: "nonsense" }, "tlsFailed|unreachable");
  });

  it("makes a link fail for good", async () => {
    const server = await serve(good);
    const witness = new HttpTransportRecorder(targetOf(new URL(urlOf(server))));
    await witness.transport.open(witness, new AbortController().signal);
    const outcome = await witness.sendRequest("initialize").outcome;
    assert.ok(outcome instanceof HubError && outcome.code === "tlsFailed");
    assert.deepEqual(witness.events, ["unanswered tlsFailed", "closed tlsFailed"]);
    await witness.transport.close();
    await server.allClosed();
  });

  it("carries a link", async () => {
    const server = await serve(good, respondJson);
    const target = targetOf(new URL(urlOf(server)), { ca: authority.cert });
    const witness = new HttpTransportRecorder(target);
    await witness.transport.open(witness, new AbortController().signal);
    for (let n = 0; n < 5; n++)
      assert.match(String(await witness.sendRequest("a").outcome), /"ok"/);
    assert.equal(server.connections, 1);
    await witness.transport.close();
    await server.allClosed();
  });
});

describe("certificates in files", () => {
  let folder = "";
  before(async () => (folder = await mkdtemp(join(tmpdir(), "toolmux-"))));
  after(() => rm(folder, { recursive: true }));

  for (const name of ["NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE"]) {
    it(`are those that ${name} names`, async () => {
      const path = join(folder, "ca.pem");
      await writeFile(path, authority.cert);
      const server = await serve(good);
      const response = await makeFetch({ ca: undefined, env: { [name]: path } })(urlOf(server));
      assert.equal(await response.text(), "hello");
      await server.allClosed();
    });
  }

  it("that are not there are named", async () => {
    const path = join(folder, "none.pem");
    const env = { NODE_EXTRA_CA_CERTS: path };
    const message = await failure("https://localhost:1/", { env });
    assert.ok(message.includes("NODE_EXTRA_CA_CERTS") && message.includes(path));
  });
});

describe("a proxy", () => {
  /** Connects where it is told to, or answers plain requests itself. */
  function relay(port: () => number, status = 200): (received: RawHttpRequest) => void {
    return (received) => {
      if (received.method !== "CONNECT") return received.respond(200, {}, `via ${received.path}`);
      if (status !== 200) return received.respond(status);
      const far = connect(port(), "127.0.0.1", () => {
        received.write("HTTP/1.1 200 Connection established\r\n\r\n");
        received.socket.removeAllListeners("data");
        received.socket.pipe(far).pipe(received.socket);
      });
      far.on("error", () => {});
    };
  }

  it("carries plain requests, with its own name and password", async () => {
    const proxy = await RawHttpServer.start(relay(() => 0));
    const env = { http_proxy: `http://me:p%40ss@127.0.0.1:${proxy.port}` };
    const response = await makeFetch({ ca: undefined, env })("http://far.invalid/x?y=1");
    assert.equal(await response.text(), "via http://far.invalid/x?y=1");
    const [received] = proxy.requests;
    assert.equal(received?.headers.get("host"), "far.invalid");
    assert.equal(received?.headers.get("proxy-authorization"), `Basic ${btoa("me:p@ss")}`);
    await proxy.allClosed();
  });

  it("sees nothing of what goes to a server with TLS", async () => {
    const far = { name: "far", hosts: ["far.invalid"], issuer: authority };
    const server = await serve(makeCertificate(far));
    const proxy = await RawHttpServer.start(relay(() => server.port));
    const env = { HTTPS_PROXY: `127.0.0.1:${proxy.port}` };
    const dial = makeFetch({ ca: authority.cert, env });
    const response = await dial("https://far.invalid/", { headers: { "X-Key": "s3cret" } });
    assert.equal(await response.text(), "hello");
    const [connection, ...more] = proxy.requests;
    assert.deepEqual([connection?.path, more], ["far.invalid:443", []]);
    assert.equal(connection?.headers.has("x-key"), false);
    await server.allClosed();
    await proxy.allClosed();
  });

  for (const [status, words] of [
    [407, /requires a name and a password \(HTTP 407\)/],
    [403, /refuses connections to far\.invalid \(HTTP 403\)/],
  ] as const) {
    it(`that refuses (HTTP ${status}) is named`, async () => {
      const proxy = await RawHttpServer.start(relay(() => 0, status));
      const env = { HTTPS_PROXY: `http://127.0.0.1:${proxy.port}` };
      assert.match(await failure("https://far.invalid/", { env }, "unreachable"), words);
      await proxy.allClosed();
    });
  }

  it("that is not there is named", async () => {
    const env = { HTTPS_PROXY: "http://127.0.0.1:1" };
    const message = await failure("https://far.invalid/", { env }, "unreachable");
    assert.match(message, /Nothing listens at 127\.0\.0\.1:1.*proxy for far\.invalid/);
  });
});
