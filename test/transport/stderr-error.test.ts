import assert from "node:assert/strict";
import { describe, it } from "node:test";
import {
  describeWithStderr,
  lastLinesWithError,
  stderrCauseOf,
  stderrErrorOf,
} from "../../src/transport/stderr-error.ts";

/** What programs write before they end; the error that this names; the kind of its cause. */
const CASES: readonly (readonly [
  program: string,
  stderr: string,
  text: string | undefined,
  kind?: string,
])[] = [
  [
    "Node.js without the file",
    `node:internal/modules/cjs/loader:1228
  throw err;
  ^

Error: Cannot find module '/srv/prices.js'
    at Function._resolveFilename (node:internal/modules/cjs/loader:1225:15)
    at node:internal/main/run_main_module:36:49 {
  code: 'MODULE_NOT_FOUND',
  requireStack: []
}

Node.js v22.11.0`,
    "Cannot find module '/srv/prices.js'",
    "file",
  ],
  [
    "Node.js without a package",
    `node:internal/modules/esm/resolve:857
  throw new ERR_MODULE_NOT_FOUND(packageName, fileURLToPath(base), null);
        ^

Error [ERR_MODULE_NOT_FOUND]: Cannot find package 'zod' imported from /srv/a.mjs
    at packageResolve (node:internal/modules/esm/resolve:857:9) {
  code: 'ERR_MODULE_NOT_FOUND'
}`,
    "Cannot find package 'zod' imported from /srv/a.mjs",
    "module",
  ],
  [
    "Node.js with a port that is in use",
    `node:events:497
      throw er; // Unhandled 'error' event
      ^

Error: listen EADDRINUSE: address already in use :::3000
    at Server.setupListenHandle [as _listen2] (node:net:1908:16)
Emitted 'error' event on Server instance at:
  errno: -98,
  syscall: 'listen',`,
    "listen EADDRINUSE: address already in use :::3000",
    "port",
  ],
  ["a class of errors", "TypeError: boom", "TypeError: boom"],
  [
    "the cause of an error",
    "Error: start failed\n    at main (/a.js:1:1) {\n  [cause]: Error: connect ECONNREFUSED 127.0.0.1:5432\n      at x",
    "connect ECONNREFUSED 127.0.0.1:5432",
  ],
  [
    "Python without a module",
    "Traceback (most recent call last):\n  File \"/srv/a.py\", line 1, in <module>\n    import httpx\nModuleNotFoundError: No module named 'httpx'",
    "ModuleNotFoundError: No module named 'httpx'",
    "module",
  ],
  [
    "Python without the file",
    "python3: can't open file '/srv/a.py': [Errno 2] No such file or directory",
    "python3: can't open file '/srv/a.py': [Errno 2] No such file or directory",
    "file",
  ],
  [
    "Python without a variable",
    'Traceback (most recent call last):\n  File "a.py", line 3\n    raise KeyError("x")\nKeyError: \'GITHUB_TOKEN\'',
    "KeyError: 'GITHUB_TOKEN'",
    "key",
  ],
  ["a shell", "sh: 1: uvx: not found", "sh: 1: uvx: not found", "program"],
  [
    "bash",
    "bash: line 1: foo-server: command not found",
    "bash: line 1: foo-server: command not found",
    "program",
  ],
  [
    "env",
    "env: 'node': No such file or directory",
    "env: 'node': No such file or directory",
    "program",
  ],
  [
    "a message about a token",
    "Starting server\nError: GITHUB_TOKEN is required\n",
    "GITHUB_TOKEN is required",
    "key",
  ],
  [
    "a message without a form",
    "Starting\nPlease set it: API_KEY is missing.",
    "Please set it: API_KEY is missing",
    "key",
  ],
  [
    "Rust",
    "thread 'main' panicked at src/main.rs:2:5:\nno config\nnote: run with `RUST_BACKTRACE=1`",
    "no config",
  ],
  [
    "Go",
    "panic: runtime error: index out of range\n\ngoroutine 1 [running]:\nmain.main()\nexit status 2",
    "runtime error: index out of range",
  ],
  [
    "Java",
    'Exception in thread "main" java.lang.IllegalStateException: bad\n\tat a.B(B.java:1)\nCaused by: java.io.FileNotFoundException: /x (No such file or directory)\n\tat c',
    "java.io.FileNotFoundException: /x (No such file or directory)",
  ],
  [
    "npm",
    "npm error code E404\nnpm error 404 Not Found - GET https://packages.example/nope - Not found\nnpm error 404\nnpm error 404  'nope@*' is not in this registry.\nnpm error 404\nnpm error A complete log of this run can be found in: /x",
    "'nope@*' is not in this registry",
  ],
  [
    "npm without a script",
    'npm error Missing script: "start"\nnpm error\nnpm error To see a list of scripts, run:',
    'Missing script: "start"',
  ],
  [
    "Docker",
    "docker: Error response from daemon: No such image: x.\nSee 'docker run --help'.",
    "No such image: x",
  ],
  [
    "argparse",
    "usage: a.py [-h] --db DB\na.py: error: the following arguments are required: --db",
    "the following arguments are required: --db",
  ],
  [
    "a logger with a time",
    "2026-01-02T10:00:00.123Z ERROR Cannot open database '/d.db'",
    "Cannot open database '/d.db'",
    "file",
  ],
  [
    "a logger that writes JSON",
    '{"level":"info","msg":"hi"}\n{"level":50,"msg":"no token given"}',
    "no token given",
    "key",
  ],
  [
    "Bun",
    'error: Cannot find module "zod" from "/srv/a.ts"\n\nBun v1.2.0 (Linux x64)',
    'Cannot find module "zod" from "/srv/a.ts"',
    "module",
  ],
  [
    "Deno",
    "error: Uncaught (in promise) TypeError: x is not a function\n    at file:///a.ts:1:1",
    "TypeError: x is not a function",
  ],
  ["colours", "\u001B[31mError: red\u001B[0m", "red"],
  ["a server that names no error", "Server listening on stdio\nready in 3 ms", undefined],
  ["a server that writes nothing", "", undefined],
];

describe("the error in a server's stderr", () => {
  for (const [program, stderr, text, kind] of CASES) {
    it(`is found: ${program}`, () => {
      const lines = stderr.split("\n").filter((line) => line.trim() !== "");
      assert.equal(stderrErrorOf(lines), text);
      assert.equal(stderrCauseOf(lines)?.kind, kind);
      const kept = lastLinesWithError(lines, 3);
      assert.ok(kept.length <= 3);
      assert.equal(stderrErrorOf(kept), text, "it is found again in the lines that are kept");
    });
  }

  it("stands before what has happened", () => {
    const happened = 'Server "a" exited with code 1.';
    assert.equal(
      describeWithStderr(happened, ["Error: boom"]),
      'boom. Server "a" exited with code 1.',
    );
    assert.equal(describeWithStderr(happened, ["hello"]), happened);
  });

  it("is found in any text within a second", () => {
    for (const part of [
      "error: ",
      "at ",
      "Caused by: ",
      "x: y: ",
      "a.b.",
      " ",
      "2026-01-01 10:00:00 ",
      "['\"",
      "/",
      ":9",
    ]) {
      const lines = Array.from({ length: 60 }, () => part.repeat(500 / part.length));
      const began = performance.now();
      stderrCauseOf(lines);
      assert.ok(performance.now() - began < 1000, part);
    }
  });
});
