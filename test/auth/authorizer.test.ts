import assert from "node:assert/strict";
import { generateKeyPairSync } from "node:crypto";
import { once } from "node:events";
import { get, type IncomingMessage } from "node:http";
import { createServer } from "node:net";
import { describe, it } from "node:test";
import { HubError } from "../../src/base/errors.ts";
import {
  TestAuthorizationServer,
  type AuthorizationServerSettings,
} from "../fixtures/authorization-server.ts";
import { browse } from "../fixtures/browser.ts";
import { type ProtectedServerOptions, ProtectedServer } from "../fixtures/protected-server.ts";
import {
  bearerTokenOf,
  CHALLENGE,
  TEST_OPTIONS,
  closedAfterTests,
  isHubError,
  NEVER_ABORTED,
} from "../fixtures/authorization-setup.ts";
import { setUp, wanting } from "../harness/login.ts";

/** Where the browser is sent back to. */
async function callbackOf(url: string): Promise<URL> {
  const sent = await fetch(url, { redirect: "manual" });
  return new URL(sent.headers.get("location") ?? "");
}

describe("an authorization that a person gives", TEST_OPTIONS, () => {
  it("leads to a token that the server takes, and is told of step by step", async () => {
    const { assertLogsIn, steps } = await setUp();
    await assertLogsIn();
    const said = ["starting", "openingBrowser", "waitingForCallback", "exchangingToken"];
    assert.deepEqual(steps, said);
  });

  it("says in both requests what the token is for, and proves to be who began (PKCE)", async () => {
    const { logIn, server, requestsTo } = await setUp();
    await logIn();
    const [login] = requestsTo("/authorize");
    const [exchange] = requestsTo("/token");
    assert.equal(login?.parameters.get("resource"), server.resource);
    assert.equal(exchange?.parameters.get("resource"), server.resource);
    assert.equal(login?.parameters.get("code_challenge_method"), "S256");
    assert.match(login?.parameters.get("state") ?? "", /^[\w-]{43}$/);
    assert.ok(exchange?.parameters.get("code_verifier"));
  });

  it("registers as a program on somebody's machine that is sent back to a port of its own", async () => {
    const { logIn, requestsTo } = await setUp();
    await logIn();
    const { json = {} } = requestsTo("/register")[0] ?? {};
    assert.equal(json["application_type"], "native");
    assert.deepEqual(json["grant_types"], ["authorization_code", "refresh_token"]);
    assert.match(String(json["redirect_uris"]), /^http:\/\/127\.0\.0\.1:\d+\/callback$/);
  });

  it("is not used for another server of the same name", async () => {
    const { logIn, openHub, authorizationServer } = await setUp();
    await logIn();
    const other = await ProtectedServer.open(authorizationServer, {});
    closedAfterTests.push(other);
    assert.equal(await bearerTokenOf(openHub(), other), undefined);
  });

  for (const [who, howMany] of [
    ["all who want it at the same time", 1],
    ["two hubs: the second finds what the first has got", 2],
  ] as const) {
    it(`is asked for once by ${who}`, async () => {
      const { logIn, openHub, openedUrls } = await setUp();
      const hubs = Array.from({ length: howMany }, () => openHub());
      const tokens = await Promise.all([...hubs, ...hubs, ...hubs].map((each) => logIn(each)));
      assert.equal(new Set(tokens).size, 1);
      assert.equal(openedUrls.length, 1);
    });
  }

  it("is asked for again with the same client, sent back to the same port", async () => {
    const { logIn, authorizationServer, requestsTo, openedUrls } = await setUp();
    await logIn();
    authorizationServer.revokeAll();
    await logIn();
    assert.equal(requestsTo("/register").length, 1);
    assert.equal(openedUrls.length, 2);
  });

  for (const [what, oauth, ms, text] of [
    ["120 s", {}, 120_000, "2 min"],
    ["the time that the manifest sets", { timeout: 30_000 }, 30_000, "30 s"],
  ] as const) {
    it(`is given up when nobody comes back within ${what}, and names what to run`, async () => {
      const { logIn, openHub, clock } = await setUp();
      const hub = openHub(async () => {
        assert.deepEqual(clock.pendingDelays, [ms]);
        clock.advanceTo(ms);
      });
      const why = new RegExp(`within ${text}.*toolmux auth login guarded`);
      await assert.rejects(logIn(hub, { oauth }), isHubError(why));
    });
  }

  it("goes on for the others when one of them does not want it any more", async () => {
    const { authorizeUntil, assertLogsIn, openHub } = await setUp();
    const abort = new AbortController();
    const hub = openHub(async (url) => {
      abort.abort(new HubError("cancelled", "enough"));
      await browse(url);
    });
    const first = authorizeUntil(abort.signal, hub);
    const second = assertLogsIn(hub);
    await assert.rejects(first, isHubError(/enough/, "cancelled"));
    await second;
  });
});

describe("the callback", TEST_OPTIONS, () => {
  const answers: readonly [name: string, change: (back: URL) => void][] = [
    ["another state", (back) => back.searchParams.set("state", "x".repeat(43))],
    ["no state", (back) => back.searchParams.delete("state")],
    ["another path", (back) => (back.pathname = "/")],
    ["neither code nor error", (back) => back.searchParams.delete("code")],
  ];
  for (const [name, change] of answers) {
    it(`takes no answer with ${name}, and goes on waiting`, async () => {
      const { assertLogsIn, openHub } = await setUp();
      const hub = openHub(async (url) => {
        const back = await callbackOf(url);
        const wrong = new URL(back);
        change(wrong);
        assert.equal((await fetch(wrong)).status, 404);
        assert.equal((await fetch(back, { method: "POST" })).status, 404);
        assert.equal((await fetch(back)).status, 200);
      });
      await assertLogsIn(hub);
    });
  }

  it("is for this machine alone: pages elsewhere that have a name for it get nothing", async () => {
    const { assertLogsIn, openHub } = await setUp();
    const hub = openHub(async (url) => {
      const back = await callbackOf(url);
      const asked = get(back, { headers: { host: "evil.example" } });
      const [answer] = (await once(asked, "response")) as [IncomingMessage];
      answer.resume();
      assert.equal(answer.statusCode, 404);
      assert.equal((await fetch(back)).status, 200);
    });
    await assertLogsIn(hub);
  });

  it("has another port if somebody has taken that of the last login, and a client of its own", async () => {
    const { logIn, assertLogsIn, authorizationServer, requestsTo } = await setUp();
    await logIn();
    const [before] = requestsTo("/authorize");
    const { port } = new URL(before?.parameters.get("redirect_uri") ?? "");
    const other = createServer();
    await new Promise<void>((resolve) => other.listen(Number(port), "127.0.0.1", resolve));
    authorizationServer.revokeAll();
    await assertLogsIn();
    await new Promise((resolve) => other.close(resolve));
    assert.equal(requestsTo("/register").length, 2);
  });
});

describe("what an authorization server does wrong", TEST_OPTIONS, () => {
  const ANOTHER = /another authorization server/;
  const plain = { authorizationEndpoint: "http://auth.example/" };
  const nobody = { issuers: ["http://127.0.0.1:9/nobody"] };
  const script = { authorizationEndpoint: "javascript:alert(1)" };
  const another = { resource: "https://elsewhere.example/mcp" };
  const wrongs: readonly [
    name: string,
    AuthorizationServerSettings,
    ProtectedServerOptions,
    why: RegExp,
  ][] = [
    [
      "names another issuer",
      { issuer: "https://elsewhere.example" },
      {},
      /another authorization se/,
    ],
    ["does not protect codes", { pkce: null }, {}, /does not support PKCE/],
    ["protects codes by nothing worth it", { pkce: ["plain"] }, {}, /does not support PKCE/],
    ["registers nobody", { allowsRegistration: false }, {}, /oauth\.clientId/],
    ["has so much to say that it does not end", { minMetadataSize: 2 << 20 }, {}, /too large/],
    ["is not to be found", {}, nobody, /127\.0\.0\.1:9/],
    ["sends people to a script", script, {}, /invalid answer|not an http\(s\) URL/],
    ["sends people where nothing is encrypted", plain, {}, /not encrypted/],
    ["is not encrypted", {}, { issuers: ["http://auth.example"] }, /not encrypted/],
    ["is what it says to be", {}, another, /elsewhere\.example/],
  ];
  for (const [name, switches, demands, why] of wrongs) {
    it(`is found out before anybody is asked for anything: it ${name}`, async () => {
      const { logIn, openedUrls } = await setUp(switches, demands);
      const code = name === "is not to be found" ? "unreachable" : "unauthorized";
      await assert.rejects(logIn(), isHubError(why, code));
      assert.deepEqual(openedUrls, []);
    });
  }

  const refusal = { status: 400, body: `{"error":"invalid_grant"}` };
  const page = { status: 200, body: "<html>" };
  const failure = { status: 500, body: "secret-in-a-trace" };
  const answers: readonly [name: string, AuthorizationServerSettings, why: RegExp][] = [
    ["comes back in another's name", { iss: "wrong" }, ANOTHER],
    ["does not say who it is as it promised", { iss: "absent", declaresIss: true }, ANOTHER],
    ["says no", { authorizationError: "access_denied" }, /access was denied/],
    ["says that it cannot", { authorizationError: "server_error" }, /"server_error"/],
    ["gives no token", { tokenError: refusal }, /"invalid_grant"/],
    ["answers with a page", { tokenError: page }, /invalid answer/],
    ["is not there any more", { tokenEndpoint: "http://127.0.0.1:9/token" }, /127\.0\.0\.1:9/],
    ["fails", { tokenError: failure }, /HTTP 500/],
  ];
  for (const [name, switches, why] of answers) {
    it(`ends a login for good, whatever a retry could do: it ${name}`, async () => {
      const { logIn, openedUrls } = await setUp(switches);
      await assert.rejects(logIn(), (error: unknown) => {
        assert.doesNotMatch(String(error), /secret-in-a-trace/);
        return isHubError(why)(error);
      });
      assert.equal(openedUrls.length, 1);
    });
  }

  it("does not show what it says went wrong if it comes back in another's name", async () => {
    const settings = { iss: "wrong", authorizationError: "visit_evil_example" } as const;
    const { logIn, requestsTo } = await setUp(settings);
    await assert.rejects(logIn(), (error: unknown) => !/evil/.test(String(error)));
    assert.deepEqual(requestsTo("/token"), []);
  });

  it("does not make the hub follow it elsewhere", async () => {
    const other = await TestAuthorizationServer.open();
    closedAfterTests.push(other);
    const place = `${other.url}/.well-known/oauth-authorization-server`;
    const { logIn } = await setUp({ redirectTo: place });
    await assert.rejects(logIn(), HubError);
    assert.deepEqual(other.requests, []);
  });

  it("does not get a registered client again whose secret has expired", async () => {
    const settings = { secretLifetime: 3600, methods: ["client_secret_post"] };
    const { logIn, time, authorizationServer, requestsTo } = await setUp(settings);
    await logIn();
    time.now += 3_590_000;
    authorizationServer.revokeAll();
    await logIn();
    assert.equal(requestsTo("/register").length, 2);
  });

  it("keeps the client that it has registered when a login is cancelled", async () => {
    const { authorizeUntil, openHub, assertLogsIn, requestsTo } = await setUp();
    for (let n = 0; n < 2; n++) {
      const abort = new AbortController();
      const visited = Promise.withResolvers<void>();
      const hub = openHub(async () => visited.resolve());
      const login = authorizeUntil(abort.signal, hub);
      await visited.promise;
      abort.abort(new HubError("cancelled", "Given up."));
      await assert.rejects(login, { code: "cancelled" });
    }
    await assertLogsIn();
    assert.equal(requestsTo("/register").length, 1);
  });

  it("does not make the hub come back as a client that it does not know any more", async () => {
    const { logIn, assertLogsIn, openHub, clock, authorizationServer } = await setUp();
    await logIn();
    authorizationServer.clients.clear();
    authorizationServer.revokeAll();
    const late = openHub(async (url) => {
      await browse(url);
      clock.advanceTo(121_000);
    });
    await assert.rejects(logIn(late), isHubError(/within 2 min/));
    await assertLogsIn();
  });
});

describe("where an authorization server is looked for", TEST_OPTIONS, () => {
  it("is what OpenID providers have, if there is nothing else", async () => {
    const { assertLogsIn } = await setUp({ metadata: "openid" });
    await assertLogsIn();
  });

  it("is where the server says in its challenge", async () => {
    const { assertLogsIn, server } = await setUp({}, { metadataPath: "/elsewhere" });
    const header = `Basic realm="x", Bearer realm="a, b", resource_metadata="${server.url.origin}/elsewhere"`;
    await assertLogsIn(undefined, {}, { status: 401, header });
  });

  it("is beside a server of old, which says nothing", async () => {
    const old = { metadataPath: "/nowhere", servesAuthorization: true };
    const { assertLogsIn, requestsTo } = await setUp({ metadata: "none" }, old);
    await assertLogsIn();
    assert.equal(requestsTo("/authorize")[0]?.parameters.has("resource"), false);
  });

  it("is the one that the manifest says, or none", async () => {
    const { logIn } = await setUp();
    const run = logIn(undefined, { oauth: { issuer: "https://trusted.example" } });
    await assert.rejects(run, isHubError(/trusted\.example/));
  });

  it("is another one now: the client of the old one is not shown to it", async () => {
    const { logIn, assertLogsIn, hub, server } = await setUp();
    await logIn(hub);
    const other = await TestAuthorizationServer.open();
    closedAfterTests.push(other);
    server.authorizationServer = other;
    await assertLogsIn(hub);
    assert.equal(other.requestsTo("/register").length, 1);
  });
});

describe("scopes", TEST_OPTIONS, () => {
  const AB = { scopes: ["a", "b"] };
  for (const [what, has, options, challenges, wanted] of [
    ["are those of the challenge", {}, AB, [wanting("a")], ["a"]],
    ["are those that the server has, without a challenge", {}, AB, [CHALLENGE], ["a b"]],
    ["are none if nobody says any", {}, {}, [CHALLENGE], [null]],
    [
      "go with offline_access where that is offered",
      { scopes: ["a", "offline_access"] },
      { scopes: ["a"] },
      [CHALLENGE],
      ["a offline_access"],
    ],
    [
      "that are missing are asked for beside those that there are",
      {},
      {},
      [wanting("read"), wanting("write", 403)],
      ["read", "read write"],
    ],
  ] as const) {
    it(what, async () => {
      const { logIn, hub, askedScopes } = await setUp(has, options);
      for (const challenge of challenges) await logIn(hub, {}, challenge);
      assert.deepEqual(askedScopes(), wanted);
    });
  }

  it("are those of the manifest if it says some, and of a person who logs in", async () => {
    const { logIn, hub, spec, target, askedScopes } = await setUp({}, { scopes: ["a", "b"] });
    const more = { oauth: { scopes: ["a"] } };
    await logIn(hub, more, wanting("b"));
    await logIn(hub, more, wanting("c", 403));
    const quiet = { signal: NEVER_ABORTED, onProgress: () => {} };
    await hub.login(spec, target, CHALLENGE, quiet, ["d"]);
    assert.deepEqual(askedScopes(), ["a", "a c", "d"]);
  });

  it("that were asked for already are not asked for again and again", async () => {
    const { logIn, hub, openedUrls } = await setUp();
    await logIn(hub, {}, wanting("read"));
    const again = logIn(hub, {}, wanting("read", 403));
    await assert.rejects(again, isHubError(/already requested.*\("read"\).*toolmux auth login/));
    assert.equal(openedUrls.length, 1);
  });

  it("of a refresh token do not grow: it is not used for that", async () => {
    const { logIn, hub, spec, target, requestsTo } = await setUp();
    await logIn(hub, {}, wanting("read"));
    const credentials = hub.credentialsFor(spec, target);
    await credentials.getHeaders(NEVER_ABORTED);
    assert.equal(await credentials.renew(wanting("write", 403), NEVER_ABORTED), false);
    assert.equal(requestsTo("/token").length, 1);
  });
});

describe("a token", TEST_OPTIONS, () => {
  const ROTATING = { rotatesRefreshTokens: true };

  it("is renewed before it expires, and not long before", async () => {
    const settings = { tokenLifetime: 3600, ...ROTATING };
    const { logIn, tokenOf, hub, server, time, refreshes } = await setUp(settings);
    const first = await logIn(hub);
    time.now += 3_530_000;
    assert.equal(await tokenOf(hub), first);
    time.now += 11_000;
    const second = await tokenOf(hub);
    assert.notEqual(second, first);
    assert.equal(await server.statusFor(second), 200);
    assert.equal(refreshes(), 1);
  });

  it("is renewed when it is refused, once for all who bore it", async () => {
    const { logIn, tokenOf, hub, server, renew, authorizationServer, refreshes } =
      await setUp(ROTATING);
    await logIn(hub);
    authorizationServer.expireAccessTokens();
    const all = await Promise.all([1, 2, 3, 4, 5].map(() => renew(hub)));
    assert.deepEqual(all, [true, true, true, true, true]);
    assert.equal(refreshes(), 1);
    assert.equal(await server.statusFor(await tokenOf(hub)), 200);
  });

  it("is kept before it is used, with the refresh token that came with it", async () => {
    const { logIn, tokenOf, server, renew, authorizationServer } = await setUp(ROTATING);
    await logIn();
    for (let round = 0; round < 3; round++) {
      authorizationServer.expireAccessTokens();
      assert.equal(await renew(), true);
      assert.equal(await server.statusFor(await tokenOf()), 200);
    }
    assert.equal(authorizationServer.hasRevoked, false);
  });

  it("is forgotten when its refresh token is good for nothing any more", async () => {
    const { logIn, tokenOf, hub, renew, authorizationServer } = await setUp();
    await logIn(hub);
    authorizationServer.revokeAll();
    assert.equal(await renew(hub), false);
    assert.equal(await tokenOf(), undefined);
  });

  it("is kept while the authorization server fails", async () => {
    const { logIn, hub, renew, authorizationServer } = await setUp();
    await logIn(hub);
    authorizationServer.expireAccessTokens();
    for (const [status, body] of [
      [503, "<html>busy"],
      [400, `{"error":"temporarily_unavailable"}`],
    ] as const) {
      authorizationServer.settings.tokenError = { status, body };
      await assert.rejects(renew(hub), isHubError(/renewed/, "unreachable"));
    }
    delete authorizationServer.settings.tokenError;
    assert.equal(await renew(hub), true);
  });

  it("of a client that the manifest does not say any more is not exchanged", async () => {
    const { logIn, hub, renew, knowClient, refreshes } = await setUp();
    for (const id of ["ours", "other"]) knowClient(id);
    await logIn(hub, { oauth: { clientId: "ours" } });
    assert.equal(await renew(hub, { oauth: { clientId: "other" } }), false);
    assert.equal(refreshes(), 0);
  });

  it("is kept while the authorization server is not there", async () => {
    const { logIn, tokenOf, openHub, renew, time, spec, target, server, authorizationServer, hub } =
      await setUp({ tokenLifetime: 3600 });
    const first = await logIn(hub);
    await authorizationServer.close();
    closedAfterTests.splice(closedAfterTests.indexOf(authorizationServer), 1);
    time.now += 3_545_000;
    assert.equal(await tokenOf(hub), first);
    await assert.rejects(renew(hub), isHubError(/renewed/, "unreachable"));
    time.now += 60_000;
    await assert.rejects(tokenOf(hub), isHubError(/renewed/, "unreachable"));
    assert.deepEqual(await openHub().getStatus(spec, target), {
      kind: "expired",
      issuer: authorizationServer.settings.issuer ?? server.issuer,
      expires: time.now - 5000,
      isRefreshable: true,
      scopes: [],
    });
  });

  it("is worth nothing after a logout, here and there", async () => {
    const { logIn, tokenOf, hub, spec, target, server } = await setUp();
    const token = await logIn(hub);
    const ended = await hub.logout(spec, target, NEVER_ABORTED);
    assert.deepEqual(ended, { kind: "revoked" });
    assert.equal(await server.statusFor(token), 401);
    assert.equal(await tokenOf(hub), undefined);
    assert.deepEqual(await hub.getStatus(spec, target), { kind: "none" });
  });

  it("is not asked for more than three times by a server that takes none", async () => {
    const { logIn, hub, openedUrls } = await setUp({ omitsRefreshTokens: true });
    for (let round = 0; round < 3; round++) await logIn(hub);
    await assert.rejects(logIn(hub), isHubError(/rejects the tokens/));
    assert.equal(openedUrls.length, 3);
  });
});

describe("a client that the manifest says", TEST_OPTIONS, () => {
  const client = { clientId: "ours", clientSecret: "a secret: with % and =" };
  const ALONE = { auth: "oauth", oauth: { ...client, grant: "clientCredentials" } } as const;

  for (const method of ["client_secret_basic", "client_secret_post"]) {
    it(`proves who it is by ${method}`, async () => {
      const { assertLogsIn, knowClient, requestsTo } = await setUp({ methods: [method] });
      knowClient("ours", client.clientSecret);
      await assertLogsIn(undefined, { oauth: client });
      assert.deepEqual(requestsTo("/register"), []);
      const [exchange] = requestsTo("/token");
      const isBasic = method === "client_secret_basic";
      assert.equal(exchange?.headers.authorization?.startsWith("Basic ") === true, isBasic);
    });

    it(`gets tokens without anybody by ${method}, before the first request`, async () => {
      const { tokenOf, server, knowClient, openedUrls } = await setUp({ methods: [method] });
      knowClient("ours", client.clientSecret);
      assert.equal(await server.statusFor(await tokenOf(undefined, ALONE)), 200);
      assert.deepEqual(openedUrls, []);
    });
  }

  it("gets tokens without anybody as often as they expire, and more if that is wanted", async () => {
    const settings = { tokenLifetime: 60, methods: ["client_secret_post"] };
    const { logIn, tokenOf, hub, time, knowClient, requestsTo } = await setUp(settings);
    knowClient("ours", client.clientSecret);
    const tokens = new Set<string | undefined>();
    for (let round = 0; round < 6; round++) {
      tokens.add(await tokenOf(hub, ALONE));
      time.now += 58_000;
    }
    assert.equal(tokens.size, 6);
    const header = `Bearer error="insufficient_scope", scope="write"`;
    await logIn(hub, ALONE, { status: 403, header });
    assert.equal(requestsTo("/token").at(-1)?.parameters.get("scope"), "write");
  });

  for (const [kind, type, wanted] of [
    ["rsa", "pkcs1", "RS256"],
    ["ec", "sec1", "ES256"],
  ] as const) {
    it(`gets tokens with a private key (${kind}), which stays where it is`, async () => {
      const { assertLogsIn, knowClient, requestsTo } = await setUp({
        methods: ["private_key_jwt"],
      });
      knowClient("ours", "none");
      const { privateKey } =
        kind === "rsa"
          ? generateKeyPairSync("rsa", { modulusLength: 2048 })
          : generateKeyPairSync("ec", { namedCurve: "P-256" });
      const pem = privateKey.export({ type, format: "pem" } as { type: "sec1"; format: "pem" });
      const oauth = { clientId: "ours", privateKey: pem, grant: "clientCredentials" as const };
      await assertLogsIn(undefined, { oauth });
      const [request] = requestsTo("/token");
      const [head = ""] = request?.parameters.get("client_assertion")?.split(".") ?? [];
      const { alg } = JSON.parse(Buffer.from(head, "base64url").toString()) as { alg: string };
      assert.equal(alg, wanted);
    });
  }

  it("is a document where the authorization server can read those", async () => {
    const id = "https://toolmux.example/client.json";
    const more = { oauth: { clientMetadataUrl: id } };
    const able = await setUp({ supportsClientDocuments: true });
    able.knowClient(id);
    await able.assertLogsIn(undefined, more);
    assert.deepEqual(able.requestsTo("/register"), []);
    const plain = await setUp();
    await plain.logIn(undefined, more);
    assert.equal(plain.requestsTo("/register").length, 1);
  });

  it("comes back to the port that the manifest says, or not at all", async () => {
    const { logIn, server } = await setUp();
    const { port } = server.url;
    const run = logIn(undefined, { oauth: { callbackPort: Number(port) } });
    await assert.rejects(run, isHubError(new RegExp(`port ${port}`)));
  });
});

describe("what the manifest says of a server's credentials", TEST_OPTIONS, () => {
  const OAUTH = { auth: "oauth" } as const;

  it("counts in that order: a header, a token of OAuth, a key file", async () => {
    const { logIn, tokenOf, hub } = await setUp();
    const key = "a-key-of-a-file";
    assert.equal(await tokenOf(hub, { key }), key);
    assert.equal(await logIn(hub), await tokenOf(hub, { key }));
    const headers = { authorization: "Bearer mine" };
    assert.equal(await tokenOf(hub, { key, headers }), undefined);
  });

  it("leaves no place for a login if it is all there is to be", async () => {
    const { logIn, hub, openedUrls } = await setUp();
    for (const [more, why] of [
      [{ headers: { Authorization: "Bearer mine" } }, /Authorization header/],
      [{ auth: "none" }, /auth = "none"/],
      [{ key: "k" }, /keyFile/],
    ] as const) {
      await assert.rejects(logIn(hub, more), isHubError(why));
    }
    assert.deepEqual(openedUrls, []);
  });

  it("is all that is borne while secrets cannot be read, unless the server wants more", async () => {
    const { logIn, tokenOf, hub, store, openedUrls } = await setUp();
    const broken = new HubError("storeBroken", "The keychain is locked.");
    store.get = () => Promise.reject(broken);
    assert.equal(await tokenOf(hub), undefined);
    assert.equal(await tokenOf(hub, { key: "a-key" }), "a-key");
    await assert.rejects(logIn(hub), (error) => error === broken);
    await assert.rejects(tokenOf(hub, OAUTH), (error) => error === broken);
    assert.deepEqual(openedUrls, []);
  });

  it("is asked for if the server takes no tokens at all", async () => {
    const { logIn } = await setUp();
    const run = logIn(undefined, {}, { status: 401, header: `Basic realm="x"` });
    await assert.rejects(run, isHubError(/headers\.Authorization/));
  });
});
