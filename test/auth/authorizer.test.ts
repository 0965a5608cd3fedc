import assert from "node:assert/strict";
import { generateKeyPairSync } from "node:crypto";
import { once } from "node:events";
import { get, type IncomingMessage } from "node:http";
import { createServer } from "node:net";
import { describe, it } from "node:test";
import type { OAuthAuthorizer } from "../../src/auth/oauth-authorizer.ts";
import { HubError } from "../../src/base/errors.ts";
import type { AuthChallenge } from "../../src/transport/http/target.ts";
import {
  TestAuthorizationServer,
  type AuthorizationServerSettings,
} from "../fixtures/authorization-server.ts";
import { browse } from "../fixtures/browser.ts";
import {
  type ProtectedServerOptions,
  ProtectedServer,
  protectedServerSpec,
  resolvedProtectedServer,
} from "../fixtures/protected-server.ts";
import {
  authorize,
  bearerTokenOf,
  CHALLENGE,
  TEST_OPTIONS,
  closedAfterTests,
  isHubError,
  type AuthorizationSetup,
  setUpAuthorization,
  NEVER_ABORTED,
} from "../fixtures/authorization-setup.ts";

describe("an authorization that a person gives", TEST_OPTIONS, () => {
  it("leads to a token that the server takes, and is told of step by step", async () => {
    const setup = await setUpAuthorization();
    const token = await authorize(setup, setup.openHub());
    assert.equal(await setup.server.statusFor(token), 200);
    const said = ["starting", "openingBrowser", "waitingForCallback", "exchangingToken"];
    assert.deepEqual(setup.steps, said);
  });

  it("says in both requests what the token is for, and proves to be who began (PKCE)", async () => {
    const setup = await setUpAuthorization();
    await authorize(setup, setup.openHub());
    const [login] = setup.authorizationServer.requestsTo("/authorize");
    const [exchange] = setup.authorizationServer.requestsTo("/token");
    assert.equal(login?.parameters.get("resource"), setup.server.resource);
    assert.equal(exchange?.parameters.get("resource"), setup.server.resource);
    assert.equal(login?.parameters.get("code_challenge_method"), "S256");
    assert.match(login?.parameters.get("state") ?? "", /^[\w-]{43}$/);
    assert.ok(exchange?.parameters.get("code_verifier"));
  });

  it("registers as a program on somebody's machine that is sent back to a port of its own", async () => {
    const setup = await setUpAuthorization();
    await authorize(setup, setup.openHub());
    const [registration] = setup.authorizationServer.requestsTo("/register");
    assert.equal(registration?.json["application_type"], "native");
    assert.deepEqual(registration?.json["grant_types"], ["authorization_code", "refresh_token"]);
    assert.match(
      String(registration?.json["redirect_uris"]),
      /^http:\/\/127\.0\.0\.1:\d+\/callback$/,
    );
  });

  it("is still there for the next hub, which asks nobody", async () => {
    const setup = await setUpAuthorization();
    const token = await authorize(setup, setup.openHub());
    assert.equal(await bearerTokenOf(setup.openHub(), setup.server), token);
    assert.equal(setup.openedUrls.length, 1);
  });

  it("is not used for another server of the same name", async () => {
    const setup = await setUpAuthorization();
    const authorizer = setup.openHub();
    await authorize(setup, authorizer);
    const other = await ProtectedServer.open(setup.authorizationServer, {});
    closedAfterTests.push(other);
    assert.equal(await bearerTokenOf(setup.openHub(), other), undefined);
  });

  it("is asked for once by all who want it at the same time", async () => {
    const setup = await setUpAuthorization();
    const authorizer = setup.openHub();
    const tokens = await Promise.all([1, 2, 3].map(() => authorize(setup, authorizer)));
    assert.equal(new Set(tokens).size, 1);
    assert.equal(setup.openedUrls.length, 1);
  });

  it("is asked for once by two hubs: the second finds what the first has got", async () => {
    const setup = await setUpAuthorization();
    const tokens = await Promise.all([
      authorize(setup, setup.openHub()),
      authorize(setup, setup.openHub()),
    ]);
    assert.equal(new Set(tokens).size, 1);
    assert.equal(setup.openedUrls.length, 1);
  });

  it("is asked for again with the same client, sent back to the same port", async () => {
    const setup = await setUpAuthorization();
    await authorize(setup, setup.openHub());
    setup.authorizationServer.revokeAll();
    await authorize(setup, setup.openHub());
    assert.equal(setup.authorizationServer.requestsTo("/register").length, 1);
    assert.equal(setup.openedUrls.length, 2);
  });

  for (const [what, oauth, ms, text] of [
    ["120 s", {}, 120_000, "2 min"],
    ["the time that the manifest sets", { timeout: 30_000 }, 30_000, "30 s"],
  ] as const) {
    it(`is given up when nobody comes back within ${what}, and names what to run`, async () => {
      const setup = await setUpAuthorization();
      const authorizer = setup.openHub(() => {
        assert.deepEqual(setup.clock.pendingDelays, [ms]);
        setup.clock.advanceTo(ms);
        return Promise.resolve();
      });
      const why = new RegExp(`within ${text}.*toolmux auth login guarded`);
      await assert.rejects(authorize(setup, authorizer, { oauth }), isHubError(why));
    });
  }

  it("ends with whoever wanted it, and the port is free again", async () => {
    const setup = await setUpAuthorization();
    const abort = new AbortController();
    const reason = new HubError("cancelled", "enough");
    const authorizer = setup.openHub(() => {
      abort.abort(reason);
      return Promise.resolve();
    });
    const run = authorizer.authorize(
      protectedServerSpec(setup.server),
      resolvedProtectedServer(setup.server),
      CHALLENGE,
      {
        signal: abort.signal,
        onProgress: () => {},
      },
    );
    await assert.rejects(run, (error) => error === reason);
    const back = new URL(setup.openedUrls[0] ?? "").searchParams.get("redirect_uri") ?? "";
    await assert.rejects(fetch(back));
  });

  it("ends with whoever wanted it, also while an answer is waited for", async () => {
    const gate = new Promise<void>(() => {});
    const setup = await setUpAuthorization({ tokenDelay: gate });
    const abort = new AbortController();
    const reason = new HubError("cancelled", "enough");
    const run = setup
      .openHub()
      .authorize(
        protectedServerSpec(setup.server),
        resolvedProtectedServer(setup.server),
        CHALLENGE,
        {
          signal: abort.signal,
          onProgress: ({ step }) => {
            if (step === "exchangingToken") abort.abort(reason);
          },
        },
      );
    await assert.rejects(run, (error) => error === reason);
  });

  it("goes on for the others when one of them does not want it any more", async () => {
    const setup = await setUpAuthorization();
    const abort = new AbortController();
    const authorizer = setup.openHub(async (url) => {
      abort.abort(new HubError("cancelled", "enough"));
      await browse(url);
    });
    const first = authorizer.authorize(
      protectedServerSpec(setup.server),
      resolvedProtectedServer(setup.server),
      CHALLENGE,
      {
        signal: abort.signal,
        onProgress: () => {},
      },
    );
    const second = authorize(setup, authorizer);
    await assert.rejects(first, isHubError(/enough/, "cancelled"));
    assert.equal(await setup.server.statusFor(await second), 200);
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
      const setup = await setUpAuthorization();
      const authorizer = setup.openHub(async (url) => {
        const sent = await fetch(url, { redirect: "manual" });
        const back = new URL(sent.headers.get("location") ?? "");
        const wrong = new URL(back);
        change(wrong);
        assert.equal((await fetch(wrong)).status, 404);
        assert.equal((await fetch(back, { method: "POST" })).status, 404);
        assert.equal((await fetch(back)).status, 200);
      });
      assert.equal(await setup.server.statusFor(await authorize(setup, authorizer)), 200);
    });
  }
});

describe("the callback's address", TEST_OPTIONS, () => {
  it("is that of this machine alone: pages elsewhere that have a name for it get nothing", async () => {
    const setup = await setUpAuthorization();
    const authorizer = setup.openHub(async (url) => {
      const sent = await fetch(url, { redirect: "manual" });
      const back = new URL(sent.headers.get("location") ?? "");
      const asked = get(back, { headers: { host: "evil.example" } });
      const [answer] = (await once(asked, "response")) as [IncomingMessage];
      answer.resume();
      assert.equal(answer.statusCode, 404);
      assert.equal((await fetch(back)).status, 200);
    });
    assert.equal(await setup.server.statusFor(await authorize(setup, authorizer)), 200);
  });

  it("is another one if somebody has taken that of the last login: then the client is registered anew", async () => {
    const setup = await setUpAuthorization();
    await authorize(setup, setup.openHub());
    const [before] = setup.authorizationServer.requestsTo("/authorize");
    const { port } = new URL(before?.parameters.get("redirect_uri") ?? "");
    const other = createServer();
    await new Promise<void>((resolve) => other.listen(Number(port), "127.0.0.1", resolve));
    setup.authorizationServer.revokeAll();
    assert.equal(await setup.server.statusFor(await authorize(setup, setup.openHub())), 200);
    await new Promise((resolve) => other.close(resolve));
    assert.equal(setup.authorizationServer.requestsTo("/register").length, 2);
  });
});

describe("what an authorization server does wrong", TEST_OPTIONS, () => {
  const wrongs: readonly [
    name: string,
    AuthorizationServerSettings,
    ProtectedServerOptions,
    why: RegExp,
  ][] = [
    [
      "names another issuer in its metadata",
      { issuer: "https://elsewhere.example" },
      {},
      /another authorization server/,
    ],
    ["does not protect codes", { pkce: null }, {}, /does not protect codes/],
    ["protects codes by nothing worth it", { pkce: ["plain"] }, {}, /does not protect codes/],
    ["registers nobody", { allowsRegistration: false }, {}, /oauth\.clientId/],
    ["has so much to say that it does not end", { minMetadataSize: 2 << 20 }, {}, /without end/],
    ["is not to be found", {}, { issuers: ["http://127.0.0.1:9/nobody"] }, /127\.0\.0\.1:9/],
    [
      "sends people to a script",
      { authorizationEndpoint: "javascript:alert(1)" },
      {},
      /did not answer as it should|none of HTTP/,
    ],
    [
      "sends people where nothing is encrypted",
      { authorizationEndpoint: "http://auth.example/" },
      {},
      /not encrypted/,
    ],
    ["is not encrypted", {}, { issuers: ["http://auth.example"] }, /not encrypted/],
    [
      "is what it says to be",
      {},
      { resource: "https://elsewhere.example/mcp" },
      /elsewhere\.example/,
    ],
  ];
  for (const [name, switches, demands, why] of wrongs) {
    it(`is found out before anybody is asked for anything: it ${name}`, async () => {
      const setup = await setUpAuthorization(switches, demands);
      const code = name === "is not to be found" ? "unreachable" : "unauthorized";
      await assert.rejects(authorize(setup, setup.openHub()), isHubError(why, code));
      assert.deepEqual(setup.openedUrls, []);
    });
  }

  const answers: readonly [name: string, AuthorizationServerSettings, why: RegExp][] = [
    ["comes back in another's name", { iss: "wrong" }, /another authorization server/],
    [
      "does not say who it is, which it promised",
      { iss: "absent", declaresIss: true },
      /another authorization server/,
    ],
    ["says no", { authorizationError: "access_denied" }, /was not given/],
    ["says that it cannot", { authorizationError: "server_error" }, /"server_error"/],
    [
      "gives no token",
      { tokenError: { status: 400, body: `{"error":"invalid_grant"}` } },
      /"invalid_grant"/,
    ],
    [
      "answers with a page",
      { tokenError: { status: 200, body: "<html>" } },
      /did not answer as it should/,
    ],
    ["is not there any more", { tokenEndpoint: "http://127.0.0.1:9/token" }, /127\.0\.0\.1:9/],
    ["fails", { tokenError: { status: 500, body: "secret-in-a-trace" } }, /"server_error"/],
  ];
  for (const [name, switches, why] of answers) {
    it(`ends a login for good, whatever a retry could do: it ${name}`, async () => {
      const setup = await setUpAuthorization(switches);
      await assert.rejects(authorize(setup, setup.openHub()), (error: unknown) => {
        assert.doesNotMatch(String(error), /secret-in-a-trace/);
        return isHubError(why)(error);
      });
      assert.equal(setup.openedUrls.length, 1);
    });
  }

  it("does not show what it says went wrong if it comes back in another's name", async () => {
    const setup = await setUpAuthorization({
      iss: "wrong",
      authorizationError: "visit_evil_example",
    });
    await assert.rejects(authorize(setup, setup.openHub()), (error: unknown) => {
      assert.doesNotMatch(String(error), /evil/);
      return true;
    });
    assert.deepEqual(setup.authorizationServer.requestsTo("/token"), []);
  });

  it("does not make the hub follow it elsewhere", async () => {
    const other = await TestAuthorizationServer.open();
    closedAfterTests.push(other);
    const place = `${other.url}/.well-known/oauth-authorization-server`;
    const setup = await setUpAuthorization({ redirectTo: place });
    await assert.rejects(authorize(setup, setup.openHub()), HubError);
    assert.deepEqual(other.requests, []);
  });

  it("does not get a registered client again whose secret has expired", async () => {
    const setup = await setUpAuthorization({
      secretLifetime: 3600,
      methods: ["client_secret_post"],
    });
    await authorize(setup, setup.openHub());
    setup.time.now += 3_590_000;
    setup.authorizationServer.revokeAll();
    await authorize(setup, setup.openHub());
    assert.equal(setup.authorizationServer.requestsTo("/register").length, 2);
  });

  it("keeps the client that it has registered when a login is cancelled", async () => {
    const setup = await setUpAuthorization();
    for (let n = 0; n < 2; n++) {
      const abort = new AbortController();
      const visited = Promise.withResolvers<void>();
      const authorizer = setup.openHub(async () => visited.resolve());
      const login = authorizer.authorize(
        protectedServerSpec(setup.server),
        resolvedProtectedServer(setup.server),
        CHALLENGE,
        {
          signal: abort.signal,
          onProgress: () => {},
        },
      );
      await visited.promise;
      abort.abort(new HubError("cancelled", "Given up."));
      await assert.rejects(login, { code: "cancelled" });
    }
    assert.equal(await setup.server.statusFor(await authorize(setup, setup.openHub())), 200);
    assert.equal(setup.authorizationServer.requestsTo("/register").length, 1);
  });

  it("does not make the hub come back as a client that it does not know any more", async () => {
    const setup = await setUpAuthorization();
    await authorize(setup, setup.openHub());
    setup.authorizationServer.clients.clear();
    setup.authorizationServer.revokeAll();
    const late = setup.openHub(async (url) => {
      await browse(url);
      setup.clock.advanceTo(121_000);
    });
    await assert.rejects(authorize(setup, late), isHubError(/within 2 min/));
    assert.equal(await setup.server.statusFor(await authorize(setup, setup.openHub())), 200);
  });
});

describe("where an authorization server is looked for", TEST_OPTIONS, () => {
  it("is what OpenID providers have, if there is nothing else", async () => {
    const setup = await setUpAuthorization({ metadata: "openid" });
    assert.equal(await setup.server.statusFor(await authorize(setup, setup.openHub())), 200);
  });

  it("is where the server says in its challenge", async () => {
    const setup = await setUpAuthorization({}, { metadataPath: "/elsewhere" });
    const header = `Basic realm="x", Bearer realm="a, b", resource_metadata="${setup.server.url.origin}/elsewhere"`;
    const token = await authorize(setup, setup.openHub(), {}, { status: 401, header });
    assert.equal(await setup.server.statusFor(token), 200);
  });

  it("is beside a server of old, which says nothing", async () => {
    const setup = await setUpAuthorization(
      { metadata: "none" },
      { metadataPath: "/nowhere", servesAuthorization: true },
    );
    const token = await authorize(setup, setup.openHub());
    assert.equal(await setup.server.statusFor(token), 200);
    assert.equal(
      setup.authorizationServer.requestsTo("/authorize")[0]?.parameters.has("resource"),
      false,
    );
  });

  it("is the one that the manifest says, or none", async () => {
    const setup = await setUpAuthorization();
    const more = { oauth: { issuer: "https://trusted.example" } };
    await assert.rejects(authorize(setup, setup.openHub(), more), isHubError(/trusted\.example/));
  });

  it("is another one now: the client of the old one is not shown to it", async () => {
    const setup = await setUpAuthorization();
    const authorizer = setup.openHub();
    await authorize(setup, authorizer);
    const other = await TestAuthorizationServer.open();
    closedAfterTests.push(other);
    setup.server.authorizationServer = other;
    const token = await authorize(setup, authorizer);
    assert.equal(await setup.server.statusFor(token), 200);
    assert.equal(other.requestsTo("/register").length, 1);
  });
});

describe("scopes", TEST_OPTIONS, () => {
  const asked = ({ authorizationServer: authority }: AuthorizationSetup): (string | null)[] =>
    authority.requestsTo("/authorize").map(({ parameters }) => parameters.get("scope"));
  const wanting = (scope: string, status: 401 | 403 = 401): AuthChallenge => ({
    status,
    header: `Bearer error="insufficient_scope", scope="${scope}"`,
  });

  it("are those of the challenge, else those that the server has, else none", async () => {
    const setup = await setUpAuthorization({}, { scopes: ["a", "b"] });
    await authorize(setup, setup.openHub(), {}, wanting("a"));
    assert.deepEqual(asked(setup), ["a"]);
    const unsaid = await setUpAuthorization({}, { scopes: ["a", "b"] });
    await authorize(unsaid, unsaid.openHub());
    assert.deepEqual(asked(unsaid), ["a b"]);
    const none = await setUpAuthorization();
    await authorize(none, none.openHub());
    assert.deepEqual(asked(none), [null]);
  });

  it("are those of the manifest if it says some, and of a person who logs in", async () => {
    const setup = await setUpAuthorization({}, { scopes: ["a", "b"] });
    const authorizer = setup.openHub();
    const more = { oauth: { scopes: ["a"] } };
    await authorize(setup, authorizer, more, wanting("b"));
    await authorize(setup, authorizer, more, wanting("c", 403));
    const quiet = { signal: NEVER_ABORTED, onProgress: () => {} };
    await authorizer.login(
      protectedServerSpec(setup.server),
      resolvedProtectedServer(setup.server),
      CHALLENGE,
      quiet,
      ["d"],
    );
    assert.deepEqual(asked(setup), ["a", "a c", "d"]);
  });

  it("go with offline_access only where that is offered", async () => {
    const setup = await setUpAuthorization({ scopes: ["a", "offline_access"] }, { scopes: ["a"] });
    await authorize(setup, setup.openHub());
    assert.deepEqual(asked(setup), ["a offline_access"]);
  });

  it("that are missing are asked for beside those that there are", async () => {
    const setup = await setUpAuthorization();
    const authorizer = setup.openHub();
    await authorize(setup, authorizer, {}, wanting("read"));
    await authorize(setup, authorizer, {}, wanting("write", 403));
    assert.deepEqual(asked(setup), ["read", "read write"]);
  });

  it("that were asked for already are not asked for again and again", async () => {
    const setup = await setUpAuthorization();
    const authorizer = setup.openHub();
    await authorize(setup, authorizer, {}, wanting("read"));
    const again = authorize(setup, authorizer, {}, wanting("read", 403));
    await assert.rejects(again, isHubError(/wants more.*\(read\).*toolmux auth login/));
    assert.equal(setup.openedUrls.length, 1);
  });

  it("of a refresh token do not grow: it is not used for that", async () => {
    const setup = await setUpAuthorization();
    const authorizer = setup.openHub();
    await authorize(setup, authorizer, {}, wanting("read"));
    const credentials = authorizer.credentialsFor(
      protectedServerSpec(setup.server),
      resolvedProtectedServer(setup.server),
    );
    await credentials.getHeaders(NEVER_ABORTED);
    assert.equal(await credentials.renew(wanting("write", 403), NEVER_ABORTED), false);
    assert.equal(setup.authorizationServer.requestsTo("/token").length, 1);
  });
});

describe("a token", TEST_OPTIONS, () => {
  const renew = (setup: AuthorizationSetup, authorizer: OAuthAuthorizer): Promise<boolean> =>
    authorizer
      .credentialsFor(protectedServerSpec(setup.server), resolvedProtectedServer(setup.server))
      .renew(CHALLENGE, NEVER_ABORTED);
  const refreshes = ({ authorizationServer: authority }: AuthorizationSetup): number =>
    authority.requestsTo("/token").filter(({ parameters }) => parameters.has("refresh_token"))
      .length;

  it("is renewed before it expires, and not long before", async () => {
    const setup = await setUpAuthorization({ tokenLifetime: 3600, rotatesRefreshTokens: true });
    const authorizer = setup.openHub();
    const first = await authorize(setup, authorizer);
    setup.time.now += 3_530_000;
    assert.equal(await bearerTokenOf(authorizer, setup.server), first);
    setup.time.now += 11_000;
    const second = await bearerTokenOf(authorizer, setup.server);
    assert.notEqual(second, first);
    assert.equal(await setup.server.statusFor(second), 200);
    assert.equal(refreshes(setup), 1);
  });

  it("is renewed when it is refused, once for all who bore it", async () => {
    const setup = await setUpAuthorization({ rotatesRefreshTokens: true });
    const authorizer = setup.openHub();
    await authorize(setup, authorizer);
    setup.authorizationServer.expireAccessTokens();
    const all = await Promise.all([1, 2, 3, 4, 5].map(() => renew(setup, authorizer)));
    assert.deepEqual(all, [true, true, true, true, true]);
    assert.equal(refreshes(setup), 1);
    assert.equal(await setup.server.statusFor(await bearerTokenOf(authorizer, setup.server)), 200);
  });

  it("that another hub has renewed is taken from there", async () => {
    const setup = await setUpAuthorization({ rotatesRefreshTokens: true });
    const [one, two] = [setup.openHub(), setup.openHub()];
    const first = await authorize(setup, one);
    assert.equal(await bearerTokenOf(two, setup.server), first);
    setup.authorizationServer.expireAccessTokens();
    assert.deepEqual(await Promise.all([renew(setup, one), renew(setup, two)]), [true, true]);
    assert.equal(refreshes(setup), 1);
    assert.equal(setup.authorizationServer.hasRevoked, false);
    assert.equal(await bearerTokenOf(one, setup.server), await bearerTokenOf(two, setup.server));
  });

  it("is kept before it is used, with the refresh token that came with it", async () => {
    const setup = await setUpAuthorization({ rotatesRefreshTokens: true });
    await authorize(setup, setup.openHub());
    for (let round = 0; round < 3; round++) {
      setup.authorizationServer.expireAccessTokens();
      const next = setup.openHub();
      assert.equal(await renew(setup, next), true);
      assert.equal(
        await setup.server.statusFor(await bearerTokenOf(setup.openHub(), setup.server)),
        200,
      );
    }
    assert.equal(setup.authorizationServer.hasRevoked, false);
  });

  it("is forgotten when its refresh token is good for nothing any more", async () => {
    const setup = await setUpAuthorization();
    const authorizer = setup.openHub();
    await authorize(setup, authorizer);
    setup.authorizationServer.revokeAll();
    assert.equal(await renew(setup, authorizer), false);
    assert.equal(await bearerTokenOf(setup.openHub(), setup.server), undefined);
  });

  it("is kept while the authorization server fails", async () => {
    const setup = await setUpAuthorization();
    const authorizer = setup.openHub();
    await authorize(setup, authorizer);
    setup.authorizationServer.expireAccessTokens();
    for (const [status, body] of [
      [503, "<html>busy"],
      [400, `{"error":"temporarily_unavailable"}`],
    ] as const) {
      setup.authorizationServer.settings.tokenError = { status, body };
      await assert.rejects(renew(setup, authorizer), isHubError(/renewed/, "unreachable"));
    }
    delete setup.authorizationServer.settings.tokenError;
    assert.equal(await renew(setup, authorizer), true);
  });

  it("of a client that the manifest does not say any more is not exchanged", async () => {
    const setup = await setUpAuthorization();
    const { clients } = setup.authorizationServer;
    for (const id of ["ours", "other"])
      clients.set(id, { secret: undefined, redirects: undefined, expires: undefined });
    const authorizer = setup.openHub();
    await authorize(setup, authorizer, { oauth: { clientId: "ours" } });
    const more = { oauth: { clientId: "other" } };
    const credentials = authorizer.credentialsFor(
      protectedServerSpec(setup.server, more),
      resolvedProtectedServer(setup.server, more),
    );
    assert.equal(await credentials.renew(CHALLENGE, NEVER_ABORTED), false);
    assert.equal(refreshes(setup), 0);
  });

  it("is kept while the authorization server is not there", async () => {
    const setup = await setUpAuthorization({ tokenLifetime: 3600 });
    const authorizer = setup.openHub();
    const first = await authorize(setup, authorizer);
    await setup.authorizationServer.close();
    closedAfterTests.splice(closedAfterTests.indexOf(setup.authorizationServer), 1);
    setup.time.now += 3_545_000;
    assert.equal(await bearerTokenOf(authorizer, setup.server), first);
    await assert.rejects(renew(setup, authorizer), isHubError(/renewed/, "unreachable"));
    setup.time.now += 60_000;
    await assert.rejects(
      bearerTokenOf(authorizer, setup.server),
      isHubError(/renewed/, "unreachable"),
    );
    assert.deepEqual(
      await setup
        .openHub()
        .getStatus(protectedServerSpec(setup.server), resolvedProtectedServer(setup.server)),
      {
        kind: "expired",
        issuer: setup.authorizationServer.settings.issuer ?? setup.server.issuer,
        expires: setup.time.now - 5000,
        isRefreshable: true,
        scopes: [],
      },
    );
  });

  it("is worth nothing after a logout, here and there", async () => {
    const setup = await setUpAuthorization();
    const authorizer = setup.openHub();
    const token = await authorize(setup, authorizer);
    const spec = protectedServerSpec(setup.server);
    const ended = await authorizer.logout(
      spec,
      resolvedProtectedServer(setup.server),
      NEVER_ABORTED,
    );
    assert.deepEqual(ended, { was: true, isRevoked: true });
    assert.equal(await setup.server.statusFor(token), 401);
    assert.equal(await bearerTokenOf(authorizer, setup.server), undefined);
    assert.deepEqual(await authorizer.getStatus(spec, resolvedProtectedServer(setup.server)), {
      kind: "none",
    });
  });

  it("is not asked for more than three times by a server that takes none", async () => {
    const setup = await setUpAuthorization({ omitsRefreshTokens: true });
    const authorizer = setup.openHub();
    for (let round = 0; round < 3; round++) await authorize(setup, authorizer);
    await assert.rejects(authorize(setup, authorizer), isHubError(/does not take tokens/));
    assert.equal(setup.openedUrls.length, 3);
  });
});

describe("a client that the manifest says", TEST_OPTIONS, () => {
  const client = { clientId: "ours", clientSecret: "a secret: with % and =" };

  for (const method of ["client_secret_basic", "client_secret_post"]) {
    it(`proves who it is by ${method}`, async () => {
      const setup = await setUpAuthorization({ methods: [method] });
      const { clientSecret: secret } = client;
      setup.authorizationServer.clients.set("ours", {
        secret,
        redirects: undefined,
        expires: undefined,
      });
      const more = { oauth: client };
      assert.equal(
        await setup.server.statusFor(await authorize(setup, setup.openHub(), more)),
        200,
      );
      assert.deepEqual(setup.authorizationServer.requestsTo("/register"), []);
      const [exchange] = setup.authorizationServer.requestsTo("/token");
      const isBasic = method === "client_secret_basic";
      assert.equal(exchange?.headers.authorization?.startsWith("Basic ") === true, isBasic);
    });

    it(`gets tokens without anybody by ${method}, before the first request`, async () => {
      const setup = await setUpAuthorization({ methods: [method] });
      const { clientSecret: secret } = client;
      setup.authorizationServer.clients.set("ours", {
        secret,
        redirects: undefined,
        expires: undefined,
      });
      const more = {
        auth: "oauth" as const,
        oauth: { ...client, grant: "clientCredentials" as const },
      };
      const token = await bearerTokenOf(setup.openHub(), setup.server, more);
      assert.equal(await setup.server.statusFor(token), 200);
      assert.deepEqual(setup.openedUrls, []);
    });
  }

  it("gets tokens without anybody as often as they expire, and more of them when that is wanted", async () => {
    const setup = await setUpAuthorization({ tokenLifetime: 60, methods: ["client_secret_post"] });
    const { clientSecret: secret } = client;
    setup.authorizationServer.clients.set("ours", {
      secret,
      redirects: undefined,
      expires: undefined,
    });
    const more = {
      auth: "oauth" as const,
      oauth: { ...client, grant: "clientCredentials" as const },
    };
    const authorizer = setup.openHub();
    const tokens = new Set<string | undefined>();
    for (let round = 0; round < 6; round++) {
      tokens.add(await bearerTokenOf(authorizer, setup.server, more));
      setup.time.now += 58_000;
    }
    assert.equal(tokens.size, 6);
    const header = `Bearer error="insufficient_scope", scope="write"`;
    await authorize(setup, authorizer, more, { status: 403, header });
    const scopes = setup.authorizationServer
      .requestsTo("/token")
      .map(({ parameters }) => parameters.get("scope"));
    assert.deepEqual(scopes.at(-1), "write");
  });

  for (const kind of ["rsa", "ec"] as const) {
    it(`gets tokens with a private key (${kind}), which stays where it is`, async () => {
      const setup = await setUpAuthorization({ methods: ["private_key_jwt"] });
      setup.authorizationServer.clients.set("ours", {
        secret: "none",
        redirects: undefined,
        expires: undefined,
      });
      const { privateKey } =
        kind === "rsa"
          ? generateKeyPairSync("rsa", { modulusLength: 2048 })
          : generateKeyPairSync("ec", { namedCurve: "P-256" });
      const type = kind === "rsa" ? "pkcs1" : "sec1";
      const pem = privateKey.export({ type, format: "pem" } as { type: "sec1"; format: "pem" });
      const oauth = { clientId: "ours", privateKey: pem, grant: "clientCredentials" as const };
      const authorizer = setup.openHub();
      const token = await authorize(setup, authorizer, { oauth });
      assert.equal(await setup.server.statusFor(token), 200);
      const [request] = setup.authorizationServer.requestsTo("/token");
      const [head = ""] = request?.parameters.get("client_assertion")?.split(".") ?? [];
      const { alg } = JSON.parse(Buffer.from(head, "base64url").toString()) as { alg: string };
      assert.equal(alg, kind === "rsa" ? "RS256" : "ES256");
    });
  }

  it("is a document where the authorization server can read those", async () => {
    const id = "https://toolmux.example/client.json";
    const setup = await setUpAuthorization({ supportsClientDocuments: true });
    setup.authorizationServer.clients.set(id, {
      secret: undefined,
      redirects: undefined,
      expires: undefined,
    });
    const more = { oauth: { clientMetadataUrl: id } };
    assert.equal(await setup.server.statusFor(await authorize(setup, setup.openHub(), more)), 200);
    assert.deepEqual(setup.authorizationServer.requestsTo("/register"), []);
    const plain = await setUpAuthorization();
    await authorize(plain, plain.openHub(), more);
    assert.equal(plain.authorizationServer.requestsTo("/register").length, 1);
  });

  it("comes back to the port that the manifest says, or not at all", async () => {
    const setup = await setUpAuthorization();
    const { port } = setup.server.url;
    const more = { oauth: { callbackPort: Number(port) } };
    await assert.rejects(
      authorize(setup, setup.openHub(), more),
      isHubError(new RegExp(`port ${port}`)),
    );
  });
});

describe("what the manifest says of a server's credentials", TEST_OPTIONS, () => {
  it("counts in that order: a header, a token of OAuth, a key file", async () => {
    const setup = await setUpAuthorization();
    const authorizer = setup.openHub();
    const key = "a-key-of-a-file";
    assert.equal(await bearerTokenOf(authorizer, setup.server, { key }), key);
    const token = await authorize(setup, authorizer);
    assert.equal(await bearerTokenOf(authorizer, setup.server, { key }), token);
    const headers = { authorization: "Bearer mine" };
    assert.equal(await bearerTokenOf(authorizer, setup.server, { key, headers }), undefined);
  });

  it("leaves no place for a login if it is all there is to be", async () => {
    const setup = await setUpAuthorization();
    const authorizer = setup.openHub();
    const headers = { Authorization: "Bearer mine" };
    await assert.rejects(
      authorize(setup, authorizer, { headers }),
      isHubError(/Authorization header/),
    );
    await assert.rejects(
      authorize(setup, authorizer, { auth: "none" }),
      isHubError(/auth = "none"/),
    );
    await assert.rejects(authorize(setup, authorizer, { key: "k" }), isHubError(/keyFile/));
    assert.deepEqual(setup.openedUrls, []);
  });

  it("asks for a login before the first request if it says oauth", async () => {
    const setup = await setUpAuthorization();
    const more = { auth: "oauth" as const };
    await assert.rejects(
      bearerTokenOf(setup.openHub(), setup.server, more),
      isHubError(/toolmux auth login/),
    );
    assert.equal(await setup.server.statusFor(await authorize(setup, setup.openHub(), more)), 200);
  });

  it("is all that is borne while secrets cannot be read, unless the server wants more", async () => {
    const setup = await setUpAuthorization();
    const broken = new HubError("storeBroken", "The keychain is locked.");
    setup.store.get = () => Promise.reject(broken);
    const authorizer = setup.openHub();
    assert.equal(await bearerTokenOf(authorizer, setup.server), undefined);
    assert.equal(await bearerTokenOf(authorizer, setup.server, { key: "a-key" }), "a-key");
    await assert.rejects(authorize(setup, authorizer), (error) => error === broken);
    const more = { auth: "oauth" as const };
    await assert.rejects(
      bearerTokenOf(authorizer, setup.server, more),
      (error) => error === broken,
    );
    assert.deepEqual(setup.openedUrls, []);
  });

  it("is asked for if the server takes no tokens at all", async () => {
    const setup = await setUpAuthorization();
    const challenge: AuthChallenge = { status: 401, header: `Basic realm="x"` };
    const run = authorize(setup, setup.openHub(), {}, challenge);
    await assert.rejects(run, isHubError(/headers\.Authorization/));
  });
});
