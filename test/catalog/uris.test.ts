import assert from "node:assert/strict";
import { describe, it } from "node:test";
import {
  decodeUri,
  encodeUriTemplate,
  encodeUri,
  parseUriTemplate,
  schemeOf,
} from "../../src/catalog/uris.ts";

describe("a URI that names its server", () => {
  for (const uri of ["file:///a%20b/é?x=1#y", "a:", "odd", "toolmux://b/c", "x://{y}", "%"]) {
    it(`leads back to ${uri}`, () => {
      const written = encodeUri("my server/1", uri);
      assert.match(written, /^toolmux:\/\/my%20server%2F1\/[^/?#]+$/);
      assert.deepEqual(decodeUri(written), { server: "my server/1", uri });
    });
  }

  it("can be written whatever servers call things, half a character included", () => {
    assert.equal(encodeUri("a", "x://\ud800"), "toolmux://a/x%3A%2F%2F%EF%BF%BD");
    assert.equal(encodeUriTemplate("\udc00", "x://\ud800"), "toolmux://%EF%BF%BD/x://\ud800");
  });

  it("may be one that was made from a template, which is not decoded", () => {
    assert.equal(encodeUriTemplate("a", "file:///{path}"), "toolmux://a/file:///{path}");
    const made = decodeUri("toolmux://a/file:///b%20c");
    assert.deepEqual(made, { server: "a", uri: "file:///b%20c" });
  });

  for (const other of ["file:///a", "toolmux://", "toolmux://a", "toolmux://a/", "toolmux://a/%"]) {
    it(`is not ${other}`, () => assert.equal(decodeUri(other), undefined));
  }
});

describe("a template", () => {
  for (const [template, uri] of [
    ["a://b", "a://b"],
    ["a://{x}", "a://1%202"],
    ["a://{x}/c/{y}", "a://1/c/2"],
    ["a://{x}-{y}", "a://1-2-3"],
    ["file:///{+path}", "file:///a/b/c"],
    ["file://{/path*}", "file:///a/b"],
    ["a://b{?q,r}", "a://b?q=1/2&r=3"],
    ["a://b{?q}", "a://b"],
    ["a://b{.ext}", "a://b.txt"],
    ["a://b{#part}", "a://b#c/d"],
    ["a://{x,y}", "a://1,2"],
    ["{+all}", "anything:at/all?"],
    ["a://{x", "a://{x"],
    ["a://{x}{y}{z}", "a://123"],
  ] as const) {
    it(`${template} has ${uri}`, () => assert.equal(parseUriTemplate(template).matches(uri), true));
  }

  for (const [template, uri] of [
    ["a://b", "a://bc"],
    ["a://{x}", "a://"],
    ["a://{x}", "a://1/2"],
    ["a://{x}/c", "a://1/d"],
    ["a://b{?q}", "a://b#c"],
    ["a://{x}", "b://1"],
  ] as const) {
    it(`${template} has not ${uri}`, () =>
      assert.equal(parseUriTemplate(template).matches(uri), false));
  }

  it("takes no longer the more values it has than there are characters", () => {
    const pattern = parseUriTemplate(`a://${"{x}".repeat(200)}!`);
    assert.equal(pattern.matches(`a://${"y".repeat(4000)}`), false);
  });

  it("of more parts than anybody needs has nothing, nor has any what is far too long", () => {
    assert.equal(parseUriTemplate("{+a}".repeat(512)).matches("a"), true);
    assert.equal(parseUriTemplate("{+a}".repeat(513)).matches("a"), false);
    assert.equal(parseUriTemplate("{+a}").matches("y".repeat(8192)), true);
    assert.equal(parseUriTemplate("{+a}").matches("y".repeat(8193)), false);
  });
});

describe("a scheme", () => {
  it("is what stands before the colon, in lower case", () => {
    assert.equal(schemeOf("File:///x"), "file:");
    assert.equal(schemeOf("file://{x}"), "file:");
    assert.equal(schemeOf("{x}://y"), undefined);
    assert.equal(schemeOf("nothing"), undefined);
  });
});
