import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { describe, it } from "node:test";
import { utf8 } from "../../../src/base/bytes.ts";
import type { HttpAnswer, HttpServerRequest } from "../../../src/frontend/http/http1/messages.ts";
import {
  BodyQuota,
  MAX_REQUEST_HEAD,
  parseRequestHead,
  RequestBody,
} from "../../../src/frontend/http/http1/request-parser.ts";
import {
  type HttpListener,
  listenHttp,
  type ListenOptions,
} from "../../../src/frontend/http/http1/server.ts";
import { RawHttpClient } from "../../fixtures/raw-http-client.ts";
import { poll } from "../../harness/wait.ts";

const LIMIT = 64 * 1024 * 1024;
const HOST = "Host: localhost\r\n";

/** Says how many bytes a request has brought, and which. */
async function echo(query: HttpServerRequest): Promise<HttpAnswer> {
  const { method, target } = query.head;
  const body = await query.read(LIMIT);
  const said = typeof body === "string" ? body : `${body.length}:${body.toString("latin1", 0, 40)}`;
  return { status: 200, headers: [], body: [utf8(`<${method} ${target} ${said}>`)] };
}

async function withListener(
  options: Pick<ListenOptions, "handle"> & Partial<ListenOptions>,
  run: (openClient: (first?: string) => RawHttpClient, listener: HttpListener) => Promise<void>,
): Promise<void> {
  const listener = await listenHttp({ hostname: "127.0.0.1", port: 0, ...options });
  const wires: RawHttpClient[] = [];
  try {
    await run((first) => {
      const wire = new RawHttpClient(listener.port);
      wires.push(wire);
      if (first !== undefined) wire.socket.write(first, "latin1");
      return wire;
    }, listener);
  } finally {
    for (const { socket } of wires) socket.destroy();
    await listener.close(0);
  }
}

const post = (body: string, more = ""): string =>
  `POST /x HTTP/1.1\r\n${HOST}${more}Content-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`;

describe("a connection over HTTP", () => {
  for (const [what, request, status] of [
    ["no HTTP at all", "hello\r\n\r\n", 400],
    ["no path", `GET x HTTP/1.1\r\n${HOST}\r\n`, 400],
    ["two spaces before the path", `GET  / HTTP/1.1\r\n${HOST}\r\n`, 400],
    ["a space in the path", `GET /a b HTTP/1.1\r\n${HOST}\r\n`, 400],
    ["lines that end otherwise", `GET / HTTP/1.1\nHost: localhost\r\n\r\n`, 400],
    ["a line end inside a line", `GET / HTTP/1.1\r\n${HOST}A: b\rC: d\r\n\r\n`, 400],
    ["a zero inside a line", `GET / HTTP/1.1\r\n${HOST}A: b\0\r\n\r\n`, 400],
    ["a line that goes on", `GET / HTTP/1.1\r\n${HOST}A: b\r\n c\r\n\r\n`, 400],
    ["a space before a colon", `POST / HTTP/1.1\r\n${HOST}Content-Length : 3\r\n\r\nabc`, 400],
    ["a header without a colon", `GET / HTTP/1.1\r\n${HOST}Abc\r\n\r\n`, 400],
    ["no host", "GET / HTTP/1.1\r\n\r\n", 400],
    ["two hosts", `GET / HTTP/1.1\r\n${HOST}${HOST}\r\n`, 400],
    ["two lengths", post("abc", "Content-Length: 3\r\n"), 400],
    ["several lengths in one", `POST / HTTP/1.1\r\n${HOST}Content-Length: 3, 3\r\n\r\nabc`, 400],
    ["a length with a sign", `POST / HTTP/1.1\r\n${HOST}Content-Length: +3\r\n\r\nabc`, 400],
    ["a length in hex", `POST / HTTP/1.1\r\n${HOST}Content-Length: 0x3\r\n\r\nabc`, 400],
    ["no length in a length", `POST / HTTP/1.1\r\n${HOST}Content-Length: \r\n\r\nabc`, 400],
    ["a length beside chunks", post("0\r\n\r\n", "Transfer-Encoding: chunked\r\n"), 400],
    [
      "chunks twice",
      post("", "").replace(
        "Content-Length: 0",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
      ),
      400,
    ],
    [
      "a coding that it does not know",
      post("").replace("Content-Length: 0", "Transfer-Encoding: gzip, chunked"),
      501,
    ],
    [
      "chunks from the time before them",
      `POST / HTTP/1.0\r\n${HOST}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n`,
      400,
    ],
    [
      "a coding with a space behind it that is none",
      post("").replace("Content-Length: 0", "Transfer-Encoding: chunked\xa0"),
      501,
    ],
    ["a host with somebody at it", "GET / HTTP/1.1\r\nHost: other@localhost\r\n\r\n", 400],
    ["a host with a path", "GET / HTTP/1.1\r\nHost: localhost/x\r\n\r\n", 400],
    ["a whole address with somebody at it", `GET http://a@b/ HTTP/1.1\r\n${HOST}\r\n`, 400],
    ["a whole address without a host beside it", "GET http://a/ HTTP/1.1\r\n\r\n", 400],
    ["a version in small letters", `GET / http/1.1\r\n${HOST}\r\n`, 400],
    ["what is no text, before it ends", "\x16\x03\x01\x02\0\x01", 400],
    ["a line that ends otherwise, before the head does", "GET / HTTP/1.1\nHost: x\n\n", 400],
    ["another version", `GET / HTTP/2.0\r\n${HOST}\r\n`, 505],
    ["another expectation", post("abc", "Expect: more\r\n"), 417],
    ["headers without end", `GET / HTTP/1.1\r\nA: ${"x".repeat(MAX_REQUEST_HEAD)}`, 431],
  ] as const)
    it(`answers ${status} to ${what}, reads nothing behind it, and ends`, () =>
      withListener({ handle: echo }, async (openClient) => {
        const wire = openClient(`${request}GET /hidden HTTP/1.1\r\n${HOST}\r\n`);
        await wire.waitForEnd();
        assert.match(wire.text, new RegExp(`^HTTP/1\\.1 ${status} `));
        assert.equal(wire.text.match(/^HTTP\/1\.1 /gm)?.length, 1);
        assert.match(wire.text, /\r\nConnection: close\r\n/);
      }));

  it("takes no longer to read a head whose lines are mostly blank", () => {
    const blank = " ".repeat(MAX_REQUEST_HEAD - 100);
    const began = performance.now();
    for (const line of [`A:${blank}\0`, `A: a${blank}b`, `A:${blank}`, `${blank}:`]) {
      parseRequestHead(Buffer.from(`GET / HTTP/1.1\r\n${HOST}${line}\r\n\r\n`));
    }
    assert.ok(performance.now() - began < 200);
  });

  it("takes a request in whatever pieces it comes", () =>
    withListener({ handle: echo }, async (openClient) => {
      const wire = openClient();
      wire.socket.setNoDelay(true);
      for (const byte of post("abc")) {
        wire.socket.write(byte);
        await new Promise((resolve) => setImmediate(resolve));
      }
      await wire.until(/<POST \/x 3:abc>$/);
    }));

  it("answers requests that come together one after the other, as they came", () =>
    withListener({ handle: echo }, async (openClient) => {
      const wire = openClient(
        `${post("abc")}\r\n${post("de")}GET /g HTTP/1.1\r\n${HOST}\r\n${post("f")}`,
      );
      await wire.until(/3:abc>.*2:de>.*<GET \/g 0:>.*1:f>$/s);
    }));

  it("takes no request out of a body", () =>
    withListener({ handle: echo }, async (openClient) => {
      const hidden = `GET /hidden HTTP/1.1\r\n${HOST}\r\n`;
      const wire = openClient(post(hidden) + post("next"));
      await wire.until(/4:next>$/);
      assert.equal(wire.text.match(/HTTP\/1\.1 200/g)?.length, 2);
    }));

  it("notices that a head is not the one before, however alike", () =>
    withListener({ handle: echo }, async (openClient) => {
      const wire = openClient();
      for (const [path, body] of [
        ["/a", "1"],
        ["/a", "2"],
        ["/b", "3"],
        ["/a", "45"],
        ["/a", "6"],
      ] as const) {
        wire.socket.write(post(body).replace("/x", path));
        await wire.until(new RegExp(`<POST ${path} ${body.length}:${body}>$`));
      }
    }));

  it("joins the chunks of a body, without what is said beside them", () =>
    withListener({ handle: echo }, async (openClient) => {
      const head = post("").replace("Content-Length: 0", "Transfer-Encoding: Chunked");
      const wire = openClient(head);
      for (const piece of ["3;a=b\r\nab", "c\r\n2\r", "\nde\r\n0\r\nX: y\r\n\r", "\n"]) {
        wire.socket.write(piece);
        await new Promise((resolve) => setImmediate(resolve));
      }
      await wire.until(/5:abcde>$/);
      wire.socket.write(post("next"));
      await wire.until(/4:next>$/);
    }));

  for (const [what, body] of [
    ["are cut up wrongly", "3\r\nabcde\r\n0\r\n\r\n"],
    ["have lines that end otherwise", "3\nabc\r\n0\r\n\r\n"],
    ["end otherwise themselves", "3\r\nabc\n0\r\n\r\n"],
    ["have something beside them that might end a line", "3;a\rb\r\nabc\r\n0\r\n\r\n"],
    ["have a size with a sign", "+3\r\nabc\r\n0\r\n\r\n"],
    ["have a size in the way of programs", "0x3\r\nabc\r\n0\r\n\r\n"],
    ["have a size that is none", "\r\nabc\r\n0\r\n\r\n"],
    ["are longer than can be counted", "10000000000000003\r\nabc\r\n0\r\n\r\n"],
    ["end with a line that ends otherwise", "3\r\nabc\r\n0\r\n\n"],
  ] as const)
    it(`ends after chunks that ${what}`, () =>
      withListener({ handle: echo }, async (openClient) => {
        const head = post("").replace("Content-Length: 0", "Transfer-Encoding: chunked");
        const wire = openClient(`${head}${body}${post("hidden")}`);
        await wire.waitForEnd();
        assert.match(wire.text, /<POST \/x broken>$/);
      }));

  it("joins as many chunks as come, however small", () =>
    withListener({ handle: echo }, async (openClient) => {
      const head = post("").replace("Content-Length: 0", "Transfer-Encoding: chunked");
      const wire = openClient(`${head}${"1\r\na\r\n".repeat(3000)}0\r\n\r\n`);
      await wire.until(/3000:a{40}>$/);
    }));

  it("keeps nothing of a body that its answer has not waited for", async () => {
    const asked = Promise.withResolvers<HttpServerRequest>();
    const answer = (query: HttpServerRequest): HttpAnswer => {
      asked.resolve(query);
      return { status: 200, headers: [], body: new ReadableStream() };
    };
    await withListener({ handle: answer }, async (openClient) => {
      const wire = openClient(post("x".repeat(1000)).slice(0, -500));
      await wire.until(/\r\n\r\n/);
      assert.equal(await (await asked.promise).read(LIMIT), "broken");
    });
  });

  it("says that a body is wanted to who waits for that, unless it is not", async () => {
    const refuse = async (query: HttpServerRequest): Promise<HttpAnswer> =>
      query.head.target === "/x" ? echo(query) : { status: 401, headers: [], body: undefined };
    await withListener({ handle: refuse }, async (openClient) => {
      const [head = "", body = ""] = post("abc", "Expect: 100-continue\r\n").split("\r\n\r\n");
      const wanted = openClient(`${head}\r\n\r\n`);
      await wanted.until(/^HTTP\/1\.1 100 Continue\r\n\r\n$/);
      wanted.socket.write(body);
      await wanted.until(/3:abc>$/);
      const unwanted = openClient(`${head.replace("/x", "/y")}\r\n\r\n`);
      await unwanted.waitForEnd();
      assert.match(unwanted.text, /^HTTP\/1\.1 401 .*\r\nConnection: close\r\n\r\n$/s);
    });
  });

  it("gives no body to HEAD, and none to a status that has none", async () => {
    const answer = async (query: HttpServerRequest): Promise<HttpAnswer> =>
      query.head.target === "/none" ? { status: 204, headers: [], body: undefined } : echo(query);
    await withListener({ handle: answer }, async (openClient) => {
      const wire = openClient(
        `HEAD /h HTTP/1.1\r\n${HOST}\r\nGET /none HTTP/1.1\r\n${HOST}\r\n${post("abc")}`,
      );
      await wire.until(/3:abc>$/);
      const [head = "", none = ""] = wire.text.split("\r\n\r\n");
      assert.match(head, /\r\nContent-Length: 12/);
      assert.match(none, /^HTTP\/1\.1 204 /);
      assert.ok(!/Content-Length/.test(none));
    });
  });

  it("says of no answer to HEAD that it is empty", async () => {
    const answer = (): HttpAnswer => ({ status: 200, headers: [], body: undefined });
    await withListener({ handle: answer }, async (openClient) => {
      const wire = openClient(`HEAD /h HTTP/1.1\r\n${HOST}\r\n`);
      await wire.until(/\r\n\r\n$/);
      assert.ok(!/Content-Length/.test(wire.text));
    });
  });

  it("is closed behind the answer for who wants that, or knows nothing else", () =>
    withListener({ handle: echo }, async (openClient) => {
      for (const request of [post("a", "Connection: close\r\n"), "GET / HTTP/1.0\r\n\r\n"]) {
        const wire = openClient(request);
        await wire.waitForEnd();
        assert.match(wire.text, /^HTTP\/1\.1 200 .*\r\nConnection: close\r\n.*>$/s);
      }
    }));

  it("takes a whole address for its path, and what it names for the host", async () => {
    const answer = ({ head }: HttpServerRequest): HttpAnswer => {
      return { status: 200, headers: [], body: [`<${head.target} ${head.headers.get("HOST")}>`] };
    };
    await withListener({ handle: answer }, async (openClient) => {
      const wire = openClient(`GET http://other.example/a?b HTTP/1.1\r\n${HOST}\r\n`);
      await wire.until(/<\/a\?b other\.example>$/);
    });
  });

  it("gives a stream in chunks, or up to its own end to who knows of none", async () => {
    const answer = (): HttpAnswer => {
      const body = new ReadableStream<Uint8Array>({
        start(controller) {
          for (const text of ["ab", "", "cde"]) controller.enqueue(utf8(text));
          controller.close();
        },
      });
      return { status: 200, headers: [], body };
    };
    await withListener({ handle: answer }, async (openClient) => {
      await openClient(post("")).until(/\r\n\r\n2\r\nab\r\n3\r\ncde\r\n0\r\n\r\n$/);
      const old = openClient("GET / HTTP/1.0\r\n\r\n");
      await old.waitForEnd();
      assert.match(old.text, /\r\n\r\nabcde$/);
    });
  });

  it("breaks off with a stream that does", async () => {
    const answer = (): HttpAnswer => {
      const pull = (controller: ReadableStreamDefaultController): void =>
        controller.error(new Error("x"));
      return { status: 200, headers: [], body: new ReadableStream({ pull }) };
    };
    await withListener({ handle: answer }, async (openClient) => {
      const wire = openClient(post(""));
      await wire.waitForEnd();
      assert.ok(!wire.text.endsWith("0\r\n\r\n"));
    });
  });

  it("gives a long answer whole to who takes it slowly", async () => {
    const body = Buffer.alloc(16 * 1024 * 1024, "x");
    await withListener(
      { handle: () => ({ status: 200, headers: [], body: ["<", body, ">"] }) },
      async (openClient) => {
        const wire = openClient(post(""));
        await wire.until(/\r\n\r\n</);
        wire.socket.pause();
        await new Promise((resolve) => setImmediate(resolve));
        wire.socket.resume();
        await wire.until(/>$/);
        assert.equal(wire.text.length - wire.text.indexOf("<"), body.length + 2);
      },
    );
  });

  it("tells who is at work that the client has gone", async () => {
    let gone = 0;
    let asked = 0;
    const answer = (query: HttpServerRequest): Promise<HttpAnswer> => {
      asked++;
      query.onDisconnect(() => gone++);
      return new Promise(() => {});
    };
    await withListener({ handle: answer }, async (openClient) => {
      const [lost, ended] = [openClient(post("")), openClient(post(""))];
      await poll(
        5000,
        () => "the requests",
        () => asked === 2 || undefined,
      );
      lost.socket.destroy();
      ended.socket.end();
      await poll(
        5000,
        () => "both to be noticed",
        () => gone === 2 || undefined,
      );
    });
  });

  it("leaves a stream alone whose client has gone", async () => {
    let isCancelled = false;
    const answer = (): HttpAnswer => {
      const cancel = (): void => void (isCancelled = true);
      return { status: 200, headers: [], body: new ReadableStream({ cancel }) };
    };
    await withListener({ handle: answer }, async (openClient) => {
      const wire = openClient(post(""));
      await wire.until(/\r\n\r\n/);
      wire.socket.destroy();
      await poll(
        5000,
        () => "the end",
        () => isCancelled || undefined,
      );
    });
  });
});

describe("a connection over HTTP on which nothing moves", () => {
  const pause = 5;

  it("is ended while it rests", () =>
    withListener({ handle: echo, checkInterval: pause }, async (openClient) => {
      const fresh = openClient();
      const used = openClient(post("abc"));
      await Promise.all([fresh.waitForEnd(), used.waitForEnd()]);
      assert.equal(fresh.text, "");
      assert.match(used.text, /3:abc>$/);
    }));

  it("is ended in the middle of a head, however slowly that goes on", () =>
    withListener({ handle: echo, checkInterval: pause }, async (openClient) => {
      const wire = openClient(`GET / HTTP/1.1\r\n${HOST}`);
      const drip = setInterval(() => wire.socket.write("A: b\r\n"), 1);
      await wire.until(/^HTTP\/1\.1 408 /);
      clearInterval(drip);
    }));

  it("has its request given up in the middle of a body, however slowly that goes on", () =>
    withListener({ handle: echo, checkInterval: pause }, async (openClient) => {
      const wire = openClient(post("x".repeat(100_000)).slice(0, -50_000));
      const drip = setInterval(() => wire.socket.write("x"), 1);
      await wire.until(/<POST \/x tooSlow>/);
      clearInterval(drip);
    }));

  it("has its request read to its end as long as the body moves, however long that takes", async () => {
    const size = 40 * 1024 * 1024;
    const piece = Buffer.alloc(1024 * 1024, "x");
    const inlet = new RequestBody(size, new BodyQuota(size));
    const body = inlet.read(size, () => {});
    for (let n = 0; n < size / piece.length; n++) {
      for (let look = 0; look < 12; look++) inlet.check();
      inlet.push(piece);
    }
    const whole = await body;
    assert.ok(typeof whole !== "string", String(whole));
    assert.equal(whole.length, size);
  });

  it("has its request given up when its body moves no more, whatever has come before", async () => {
    const inlet = new RequestBody("chunked", new BodyQuota(Infinity));
    const body = inlet.read(Infinity, () => {});
    inlet.push(Buffer.from(`${(3 << 20).toString(16)}\r\n${"x".repeat(2 << 20)}`));
    for (let look = 0; look < 25; look++) {
      inlet.check();
      inlet.push(Buffer.from("x"));
    }
    assert.equal(await body, "tooSlow");
  });

  it("is ended if its client takes nothing of what it is given", async () => {
    const body = Buffer.alloc(32 * 1024 * 1024, "x");
    await withListener(
      { handle: () => ({ status: 200, headers: [], body: [body] }), checkInterval: pause },
      async (openClient) => {
        const wire = openClient();
        wire.socket.pause();
        wire.socket.write(post(""));
        // Those that rest are given as many looks.
        for (let count = 0; count < 2; count++) await openClient().waitForEnd();
        wire.socket.resume();
        await wire.waitForEnd();
        assert.ok(wire.text.length < body.length);
      },
    );
  });

  it("lasts as long as an answer is due", async () => {
    let answered = (): void => {};
    const answer = (): Promise<HttpAnswer> =>
      new Promise((resolve) => {
        answered = () => resolve({ status: 200, headers: [], body: ["<late>"] });
      });
    await withListener({ handle: answer, checkInterval: pause }, async (openClient) => {
      const wire = openClient(post(""));
      const other = openClient();
      // Another one that rests has been ended for it meanwhile.
      await other.waitForEnd();
      answered();
      await wire.until(/<late>$/);
    });
  });
});

describe("a connection over HTTP of a face that closes", () => {
  it("takes no request any more, but gives the answer to the one that it has", async () => {
    const asked = Promise.withResolvers<(answer: HttpAnswer) => void>();
    const answer = (): Promise<HttpAnswer> => new Promise((resolve) => asked.resolve(resolve));
    await withListener({ handle: answer }, async (openClient, listener) => {
      const resting = openClient();
      const busy = openClient(post(""));
      const respond = await asked.promise;
      const closed = listener.close(5000);
      await resting.waitForEnd();
      respond({ status: 200, headers: [], body: ["<last>"] });
      busy.socket.write(post("more"));
      await busy.waitForEnd();
      await closed;
      assert.match(busy.text, /Connection: close\r\n\r\n<last>$/);
      assert.equal(busy.text.match(/HTTP\/1\.1/g)?.length, 1);
    });
  });
});
