import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { proxyFor } from "../../../src/transport/http-client/proxy.ts";

const PROXY = "http://proxy.test:3128";

function shown(url: string, env: Readonly<Record<string, string>>): string | undefined {
  const found = proxyFor(new URL(url), env);
  return found instanceof URL ? found.origin : found;
}

describe("which proxy a URL is reached by", () => {
  for (const [url, env, expected] of [
    ["https://a.test/", {}, undefined],
    ["https://a.test/", { HTTPS_PROXY: PROXY }, PROXY],
    ["https://a.test/", { https_proxy: PROXY, HTTPS_PROXY: "http://other.test" }, PROXY],
    ["https://a.test/", { HTTP_PROXY: PROXY }, undefined],
    ["http://a.test/", { HTTP_PROXY: PROXY }, PROXY],
    ["http://a.test/", { HTTPS_PROXY: PROXY }, undefined],
    ["http://a.test/", { ALL_PROXY: PROXY }, PROXY],
    ["https://a.test/", { all_proxy: PROXY, HTTPS_PROXY: "" }, PROXY],
    ["https://a.test/", { HTTPS_PROXY: "proxy.test:3128" }, PROXY],
    ["https://a.test/", { HTTPS_PROXY: "socks5://proxy.test" }, "socks5://proxy.test"],
    ["http://localhost:3000/", { HTTP_PROXY: PROXY }, undefined],
    ["http://127.0.0.1:3000/", { HTTP_PROXY: PROXY }, undefined],
    ["http://[::1]:3000/", { HTTP_PROXY: PROXY }, undefined],
  ] as const) {
    it(`${url} with ${JSON.stringify(env)}: ${expected ?? "none"}`, () => {
      assert.equal(shown(url, env), expected);
    });
  }

  for (const [entry, url, isExempt] of [
    ["*", "https://a.test/", true],
    ["a.test", "https://a.test/", true],
    ["A.Test", "https://a.test/", true],
    ["a.test", "https://b.a.test/", true],
    [".a.test", "https://b.a.test/", true],
    ["*.a.test", "https://b.a.test/", true],
    ["a.test", "https://ba.test/", false],
    ["x.test, a.test", "https://a.test/", true],
    ["x.test a.test", "https://a.test/", true],
    ["a.test:443", "https://a.test/", true],
    ["a.test:8443", "https://a.test/", false],
    ["a.test:8443", "https://a.test:8443/", true],
    ["10.0.0.0/8", "https://10.2.3.4/", true],
    ["10.0.0.0/8", "https://11.2.3.4/", false],
    ["192.168.1.7", "https://192.168.1.7/", true],
    ["fd00::1", "https://[fd00::1]/", true],
    ["[fd00::1]:443", "https://[fd00::1]/", true],
    ["", "https://a.test/", false],
  ] as const) {
    it(`NO_PROXY "${entry}" is ${isExempt ? "" : "not "}for ${url}`, () => {
      const env = { HTTPS_PROXY: PROXY, NO_PROXY: entry };
      assert.equal(shown(url, env), isExempt ? undefined : PROXY);
    });
  }
});
