import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { findPlaintextSecrets } from "../../src/client-configs/import-plan.ts";
import { compareRequestKeys } from "../../src/recording/exchanges.ts";
import { describeCommand } from "../../src/operations/server-description.ts";
import {
  findSuspectedSecrets,
  isPlaintextSecret,
  isSecretName,
} from "../../src/manifest/plaintext-secrets.ts";

const JWT =
  "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U";
const SHA1 = "5f2b1c3d4e5f60718293a4b5c6d7e8f901234567";

describe("a name tells of a secret by its whole words", () => {
  const TELLING = `API_KEY apiKey APIKEY x-api-key --api-key OPENAI_API_KEY_PROD API_KEY_2
    SECRET_KEY_BASE PGPASSWORD MYSQL_PWD DB_PASS GITHUB_PAT GITHUBTOKEN authToken OAuthToken
    clientSecret Authorization Proxy-Authorization COOKIE Set-Cookie BASIC_AUTH
    AWS_SECRET_ACCESS_KEY GOOGLE_CREDENTIALS`;
  for (const name of TELLING.split(/\s+/)) {
    it(`as ${name} does`, () => assert.equal(isSecretName(name), true));
  }

  const PLAIN = `AUTHOR AUTHORITY GIT_AUTHOR_EMAIL KEYBOARD KEYMAP KEYWORDS KEY_BINDINGS MONKEY
    COMPASS BYPASS TOKENIZER MAX_TOKENS maxOutputTokens TOKENS_PER_MINUTE TOKEN_LIMIT TOKEN_FILE
    TOKEN_URL AUTH_MODE SECRET_NAME PUBLIC_KEY SORT_KEY SPATIAL PATH --pattern`;
  for (const name of PLAIN.split(/\s+/)) {
    it(`and not as ${name} does not`, () => assert.equal(isSecretName(name), false));
  }
});

describe("a value", () => {
  for (const [name, value] of [
    ["API_KEY", "abcdef"],
    ["GITHUB_TOKEN", "ghp_x-y"],
    ["Authorization", "dXNlcjpwYXNz"],
    ["COOKIE", "session=abc; theme=dark"],
    ["GITHUB_PAT", "hunter2-hunter2"],
    ["ANYTHING", JWT],
    ["ANYTHING", "sk-abcdefghijklmnop12345678"],
    ["ANYTHING", "sk-proj-Ab3dEf6hIj9lMn2pQr5t"],
    ["ANYTHING", "sk-ant-api03-Ab3d.Ef6h/Ij9l-Mn2pQr5tUv8x"],
    ["ANYTHING", `ghp_${"a1B2c3D4".repeat(4)}`],
    ["ANYTHING", "github_pat_11ABCDEFG0abcdefghijkl_mnopqrstuvwxyz"],
    ["ANYTHING", "AKIAIOSFODNN7EXAMPLE"],
    ["ANYTHING", "xoxb-123456789012-abcdefGHIJKL"],
    ["DATABASE_URL", "postgres://ada:hunter2@db.example.com:5432/app"],
    ["DATABASE_URL", "postgres://ada:p@ss:word@db.example.com/app"],
    ["REDIS", "redis://:hunter2@localhost:6379/0"],
    ["SQL", "Server=tcp:db;User Id=ada;Password=hunter2;Encrypt=true"],
    ["SQL", "host=db user=ada password=hunter2"],
    ["OPENAPI_HEADERS", '{"Authorization": "Bearer hunter2-hunter2", "Accept": "*"}'],
    ["AUTH_HEADER", "Bearer hunter2-hunter2"],
    ["WEBHOOK", "https://h.example.com/?api_key=hunter2&a=1"],
    ["ANYTHING", "Zx9Kq2Lw7Vb4Nm1Rt6Yp"],
    ["ANYTHING", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"],
    ["ANYTHING", "9f86d081884c7d659a2feaa0c55ad015"],
    ["MODE", "a1b2c3d4e5f6a7b8c9d0e1f2"],
  ] as const) {
    it(`looks like a secret, or holds one: ${name}=${value}`, () => {
      assert.equal(isPlaintextSecret(name, value), true);
    });
  }

  for (const [name, value] of [
    ["API_KEY", "abcde"],
    ["KEY_FILE", "whatever-it-is"],
    ["GOOGLE_APPLICATION_CREDENTIALS", "/home/ada/key.json"],
    ["TOKEN_URL", "https://x/token"],
    ["MODEL", "some-long-name-without-digits"],
    ["LOG_LEVEL", "warning"],
    ["AUTHOR", "Ada Lovelace <ada@example.com>"],
    ["KEYBOARD", "querty-us-intl"],
    ["KEYMAP", "emacs-standard"],
    ["MONKEY", "chimpanzee"],
    ["COMPASS", "north-northwest"],
    ["TOKENIZER", "cl100k_base_tokenizer"],
    ["MAX_TOKENS", "128000"],
    ["OUTPUT_TOKENS", "128000"],
    ["AUTHORITY", "https://login.example.com/common"],
    ["KEYWORDS", "alpha,beta,gamma"],
    ["REVISION", SHA1],
    ["ANYTHING", SHA1],
    ["ANYTHING", "123e4567-e89b-12d3-a456-426614174000"],
    ["CLIENT_ID", "Zx9Kq2Lw7Vb4Nm1Rt6Yp"],
    ["MODEL", "claude-sonnet-4-20250514"],
    ["ANYTHING", "anthropic.claude-3-5-sonnet-20241022-v2:0"],
    ["ANYTHING", "gpt-4o-mini-2024-07-18"],
    ["ANYTHING", "meta-llama/Llama-3.3-70B-Instruct-Turbo"],
    ["ANYTHING", "text-embedding-3-large-v1.2"],
    ["ANYTHING", "/usr/lib/node_modules/a1/b2/c3/d4"],
    ["ANYTHING", "@modelcontextprotocol/server-filesystem@2025.8.21"],
    ["ANYTHING", "registry.example.com/team/image-name:1.2.3"],
    ["ANYTHING", "getUserByIdentifierName2"],
    ["ANYTHING", "https://example.com/a/b?page=2&sort=name"],
    ["SENTRY", "https://o1.ingest.example.com/42"],
    ["API_KEY_FILE", "/run/secrets/api-key"],
    ["AUTH", "disabled"],
  ] as const) {
    it(`is no secret: ${name}=${value}`, () => {
      assert.deepEqual(findSuspectedSecrets(name, value), []);
      assert.equal(isPlaintextSecret(name, value), false);
    });
  }

  it("of which a part is a secret is one in that part only", () => {
    const values = (text: string): readonly string[] =>
      findSuspectedSecrets("ANYTHING", text).map(({ value }) => value);
    assert.deepEqual(values("postgres://ada:p@ss:word@db/app"), ["p@ss:word"]);
    assert.deepEqual(values("https://h/?api_key=hunter2&a=1"), ["hunter2"]);
    assert.deepEqual(values('{"Authorization": "Bearer hunter2-x"}'), ["hunter2-x"]);
    const token = `ghp_${"a1B2".repeat(5)}`;
    assert.deepEqual(values(`--run --with ${token} --now`), [token]);
  });
});

describe("that one list is what is used", () => {
  const open = { AUTHOR: "Ada Lovelace", MAX_TOKENS: "128000", REVISION: SHA1 };
  const secret = { COOKIE: "session=abcdef", DSN: "postgres://ada:hunter2@db/app" };

  it("for what stands in entries in the clear", () => {
    const entry = { command: "x", args: ["--author", "Ada L", JWT], env: { ...open, ...secret } };
    const found = findPlaintextSecrets(entry, "s").map(({ label, value }) => `${label} ${value}`);
    const wanted = [`env.COOKIE ${secret.COOKIE}`, "env.DSN hunter2", `args.2 ${JWT}`];
    assert.deepEqual(found, wanted);
  });

  it("for command lines that are shown", () => {
    const named = ["--author", "ada-lovelace", "--max-tokens=128000"];
    const args = [...named, secret.DSN, JWT, "--pat", "abc"];
    const shown = describeCommand({ command: "x", args, env: {} });
    for (const text of ["ada-lovelace", "128000", "postgres://"]) assert.ok(shown.includes(text));
    for (const text of ["hunter2", JWT, "abc"]) assert.ok(!shown.includes(text), text);
  });

  it("for what differs between a recording and a request", () => {
    const [mine, theirs] = ['{"author":"a","cookie":"a"}', '{"author":"ada","cookie":"hunter2"}'];
    const asked = compareRequestKeys(mine, theirs).map((one) => `${one.path} ${one.asked}`);
    assert.deepEqual(asked, ['author "ada"', "cookie [not shown]"]);
  });
});
