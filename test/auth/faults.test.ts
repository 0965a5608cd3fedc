import assert from "node:assert/strict";
import { generateKeyPairSync } from "node:crypto";
import { describe, it } from "node:test";
import type { OAuthAuthorizer } from "../../src/auth/oauth-authorizer.ts";
import { HubError } from "../../src/base/errors.ts";
import type { AuthChallenge } from "../../src/transport/http/target.ts";
import { TestAuthorizationServer } from "../fixtures/authorization-server.ts";
import {
  ProtectedServer,
  protectedServerSpec,
  resolvedProtectedServer,
} from "../fixtures/protected-server.ts";
import { poll } from "../harness/wait.ts";
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

type Said = Parameters<typeof resolvedProtectedServer>[1];

function renew(
  setup: AuthorizationSetup,
  authorizer: OAuthAuthorizer,
  more: Said = {},
): Promise<boolean> {
  return authorizer
    .credentialsFor(
      protectedServerSpec(setup.server, more),
      resolvedProtectedServer(setup.server, more),
    )
    .renew(CHALLENGE, NEVER_ABORTED);
}

function refreshes({ authorizationServer: authority }: AuthorizationSetup): number {
  return authority.requestsTo("/token").filter(({ parameters }) => parameters.has("refresh_token"))
    .length;
}

function wanting(scope: string, status: 401 | 403): AuthChallenge {
  return { status, header: `Bearer error="insufficient_scope", scope="${scope}"` };
}

/** A client that gets tokens by itself. */
function knowClient(
  { authorizationServer: authority }: AuthorizationSetup,
  secret = "a secret",
): NonNullable<Said> {
  authority.clients.set("ours", { secret, redirects: undefined, expires: undefined });
  const oauth = { clientId: "ours", clientSecret: secret, grant: "clientCredentials" as const };
  return { auth: "oauth", oauth };
}

describe("a server that says too much", TEST_OPTIONS, () => {
  const many = (text: string): string[] => Array.from({ length: 10_000 }, (_, at) => text + at);

  it("of its authorization servers fills no error with that", async () => {
    const setup = await setUpAuthorization({}, { issuers: many("https://auth.example/") });
    const more = { oauth: { issuer: "https://trusted.example" } };
    await assert.rejects(authorize(setup, setup.openHub(), more), (error: unknown) => {
      assert.ok(String(error).length < 1000, String(error).slice(0, 1000));
      return isHubError(/auth\.example\/0.*trusted\.example/)(error);
    });
  });

  it("of its scopes sends nobody to a page with an endless address", async () => {
    const setup = await setUpAuthorization({}, { scopes: many("scope:") });
    await authorize(setup, setup.openHub());
    assert.ok((setup.openedUrls[0] ?? "").length < 8000);
  });

  it("of what it lacks fills no error with that", async () => {
    const setup = await setUpAuthorization();
    const authorizer = setup.openHub();
    const scope = many("s").slice(0, 2000).join(" ");
    await authorize(setup, authorizer, {}, wanting(scope, 401));
    await assert.rejects(
      authorize(setup, authorizer, {}, wanting(scope, 403)),
      (error: unknown) => {
        assert.ok(String(error).length < 1000, String(error).slice(0, 1000));
        return isHubError(/wants more.*s0 s1/)(error);
      },
    );
  });
});

describe("the life of a token", TEST_OPTIONS, () => {
  for (const life of [null, 0, -1, "", 1e300]) {
    it(`is not known if the authorization server says ${JSON.stringify(life)}`, async () => {
      const setup = await setUpAuthorization({ tokenMembers: { expires_in: life } });
      const authorizer = setup.openHub();
      const token = await authorize(setup, authorizer);
      setup.time.now += 1000;
      assert.equal(await bearerTokenOf(authorizer, setup.server), token);
      assert.equal(await bearerTokenOf(setup.openHub(), setup.server), token);
      assert.equal(refreshes(setup), 0);
      const standing = await setup
        .openHub()
        .getStatus(protectedServerSpec(setup.server), resolvedProtectedServer(setup.server));
      assert.equal(standing.kind, "authorized");
      assert.ok("expires" in standing && standing.expires === undefined);
    });
  }

  it("may be spelled as a text", async () => {
    const setup = await setUpAuthorization({ tokenMembers: { expires_in: "3600" } });
    const authorizer = setup.openHub();
    const token = await authorize(setup, authorizer);
    setup.time.now += 3_500_000;
    assert.equal(await bearerTokenOf(authorizer, setup.server), token);
    setup.time.now += 50_000;
    assert.notEqual(await bearerTokenOf(authorizer, setup.server), token);
  });

  it("is lived to its end where there is nothing to renew it with", async () => {
    const setup = await setUpAuthorization({ tokenLifetime: 3600, omitsRefreshTokens: true });
    const authorizer = setup.openHub();
    const token = await authorize(setup, authorizer);
    setup.time.now += 3_599_000;
    assert.equal(await bearerTokenOf(authorizer, setup.server), token);
    setup.authorizationServer.expireAccessTokens();
    assert.equal(await renew(setup, authorizer), false);
    assert.equal(await bearerTokenOf(authorizer, setup.server), undefined);
  });
});

describe("a token that was renewed", TEST_OPTIONS, () => {
  it("is used though it cannot be kept, and kept as soon as that can be done", async () => {
    const setup = await setUpAuthorization({ rotatesRefreshTokens: true });
    const authorizer = setup.openHub();
    const first = await authorize(setup, authorizer);
    const { set } = setup.store;
    setup.store.set = () => Promise.reject(new HubError("storeBroken", "The disk is full."));
    for (let round = 0; round < 2; round++) {
      setup.authorizationServer.expireAccessTokens();
      assert.equal(await renew(setup, authorizer), true);
      assert.equal(
        await setup.server.statusFor(await bearerTokenOf(authorizer, setup.server)),
        200,
      );
    }
    assert.equal(await bearerTokenOf(setup.openHub(), setup.server), first);
    setup.store.set = set;
    setup.authorizationServer.expireAccessTokens();
    assert.equal(await renew(setup, authorizer), true);
    const token = await bearerTokenOf(authorizer, setup.server);
    assert.equal(await setup.server.statusFor(token), 200);
    assert.equal(await bearerTokenOf(setup.openHub(), setup.server), token);
    assert.equal(setup.authorizationServer.hasRevoked, false);
  });

  it("in vain is kept when the manifest's client is refused: its secret may be a slip", async () => {
    const setup = await setUpAuthorization({ methods: ["client_secret_post"] });
    const secret = "right";
    setup.authorizationServer.clients.set("ours", {
      secret,
      redirects: undefined,
      expires: undefined,
    });
    const right = { oauth: { clientId: "ours", clientSecret: secret } };
    const authorizer = setup.openHub();
    await authorize(setup, authorizer, right);
    setup.authorizationServer.expireAccessTokens();
    const wrong = { oauth: { clientId: "ours", clientSecret: "wrong" } };
    await assert.rejects(
      renew(setup, authorizer, wrong),
      isHubError(/oauth\.clientId/, "serverRefused"),
    );
    assert.equal(await renew(setup, authorizer, right), true);
  });

  it("and refused, again and again, is not renewed for ever", async () => {
    const setup = await setUpAuthorization({ rotatesRefreshTokens: true });
    const authorizer = setup.openHub();
    await authorize(setup, authorizer);
    const renewed: boolean[] = [];
    for (let round = 0; round < 15; round++) renewed.push(await renew(setup, authorizer));
    assert.equal(renewed.indexOf(false), 10);
    assert.equal(refreshes(setup), 10);
    setup.time.now += 61_000;
    assert.equal(await renew(setup, authorizer), true);
  });

  it("is not waited for at a server that takes requests and does not answer", async () => {
    const setup = await setUpAuthorization({ methods: ["client_secret_post"], tokenLifetime: 60 });
    const more = knowClient(setup);
    const authorizer = setup.openHub();
    await bearerTokenOf(authorizer, setup.server, more);
    setup.time.now += 61_000;
    setup.server.state.isSilent = true;
    const waiting = bearerTokenOf(authorizer, setup.server, more);
    waiting.catch(() => {});
    await poll(
      5000,
      () => "a limit",
      () => setup.clock.pendingDelays.find((ms) => ms === 10_000),
    );
    setup.clock.advanceTo(10_000);
    await assert.rejects(waiting, isHubError(/did not answer within 10 s/, "unreachable"));
    setup.server.state.isSilent = false;
    assert.equal(
      await setup.server.statusFor(await bearerTokenOf(authorizer, setup.server, more)),
      200,
    );
  });
});

describe("a login by hand", TEST_OPTIONS, () => {
  const login = (setup: AuthorizationSetup, by: OAuthAuthorizer): Promise<void> =>
    by.login(
      protectedServerSpec(setup.server),
      resolvedProtectedServer(setup.server),
      { status: 401, header: "Bearer" },
      { signal: NEVER_ABORTED, onProgress: () => {} },
      undefined,
    );

  it("is found by a hub that has looked before, when the server asks for it", async () => {
    const setup = await setUpAuthorization();
    const hub = setup.openHub();
    assert.equal(await bearerTokenOf(hub, setup.server), undefined);
    await login(setup, setup.openHub());
    assert.equal(await renew(setup, hub), true);
    assert.equal(await setup.server.statusFor(await bearerTokenOf(hub, setup.server)), 200);
    assert.equal(setup.openedUrls.length, 1);
  });

  it("is found by a hub that has looked before and asks nothing without one", async () => {
    const setup = await setUpAuthorization();
    const hub = setup.openHub();
    const more = { auth: "oauth" as const };
    await assert.rejects(bearerTokenOf(hub, setup.server, more), isHubError(/toolmux auth login/));
    await login(setup, setup.openHub());
    assert.equal(await setup.server.statusFor(await bearerTokenOf(hub, setup.server, more)), 200);
  });

  it("is found by a hub that has asked too often", async () => {
    const setup = await setUpAuthorization({ omitsRefreshTokens: true });
    const hub = setup.openHub();
    for (let round = 0; round < 3; round++) await authorize(setup, hub);
    await assert.rejects(authorize(setup, hub), isHubError(/does not take tokens/));
    await login(setup, setup.openHub());
    assert.equal(await setup.server.statusFor(await authorize(setup, hub)), 200);
    assert.equal(setup.openedUrls.length, 4);
  });

  it("has its whole time when it had to wait for another one", async () => {
    const setup = await setUpAuthorization();
    const hub = setup.openHub(async () => {
      setup.clock.advanceTo(100_000);
      late = login(setup, setup.openHub());
      await new Promise(setImmediate);
      setup.clock.advanceTo(120_000);
    });
    let late: Promise<void> | undefined;
    await assert.rejects(authorize(setup, hub), isHubError(/within 2 min/));
    await late;
    assert.equal(
      await setup.server.statusFor(await bearerTokenOf(setup.openHub(), setup.server)),
      200,
    );
  });
});

describe("a login that is given up", TEST_OPTIONS, () => {
  const steps = [
    "/.well-known/oauth-authorization-server",
    "/register",
    "/authorize",
    "/token",
  ] as const;
  for (const step of steps) {
    it(`while ${step} is asked leaves nobody listening and nothing kept`, async () => {
      const setup = await setUpAuthorization();
      const abort = new AbortController();
      const reason = new HubError("cancelled", "enough");
      const { requests: noted } = setup.authorizationServer;
      const note = noted.push.bind(noted);
      noted.push = (...all) => {
        if (all.some(({ path }) => path === step)) abort.abort(reason);
        return note(...all);
      };
      const run = setup
        .openHub()
        .authorize(
          protectedServerSpec(setup.server),
          resolvedProtectedServer(setup.server),
          CHALLENGE,
          {
            signal: abort.signal,
            onProgress: () => {},
          },
        );
      await assert.rejects(run, (error) => error === reason);
      await Promise.allSettled(setup.pageLoads.splice(0));
      const [registered] = setup.authorizationServer.requestsTo("/register");
      const [back] = (registered?.json["redirect_uris"] ?? []) as readonly string[];
      if (back !== undefined) await assert.rejects(fetch(back));
      assert.equal(await bearerTokenOf(setup.openHub(), setup.server), undefined);
      assert.equal(await setup.server.statusFor(await authorize(setup, setup.openHub())), 200);
    });
  }
});

describe("a token that another hub has just got", TEST_OPTIONS, () => {
  it("is taken though it is for less than the server named: nobody has refused it yet", async () => {
    const setup = await setUpAuthorization({ withheldScopes: ["b"] });
    const [one, two] = [setup.openHub(), setup.openHub()];
    assert.equal(await bearerTokenOf(two, setup.server), undefined);
    await authorize(setup, one, {}, wanting("a b", 401));
    await authorize(setup, two, {}, wanting("a b", 401));
    assert.equal(setup.openedUrls.length, 1);
  });
});

describe("servers that share something", TEST_OPTIONS, () => {
  const quiet = { signal: NEVER_ABORTED, onProgress: (): void => {} };
  const bear = async (
    by: OAuthAuthorizer,
    place: { readonly url: URL },
    name = "guarded",
  ): Promise<string | undefined> => {
    const headers = await by
      .credentialsFor({ ...protectedServerSpec(place), name }, resolvedProtectedServer(place))
      .getHeaders(NEVER_ABORTED);
    return headers["Authorization"]?.replace(/^Bearer /, "");
  };

  it("such as their authorization server are logged in to at the same time, each by itself", async () => {
    const setup = await setUpAuthorization();
    const other = await ProtectedServer.open(setup.authorizationServer);
    closedAfterTests.push(other);
    const hub = setup.openHub();
    const name = "other";
    await Promise.all([
      authorize(setup, hub),
      hub.authorize(
        { ...protectedServerSpec(other), name },
        resolvedProtectedServer(other),
        CHALLENGE,
        quiet,
      ),
    ]);
    const [one, two] = [await bear(hub, setup.server), await bear(hub, other, name)];
    assert.notEqual(one, two);
    assert.equal(await setup.server.statusFor(one), 200);
    assert.equal(await other.statusFor(two), 200);
  });

  it("such as all but a name, or a path, have tokens of their own", async () => {
    const setup = await setUpAuthorization();
    const hub = setup.openHub();
    assert.ok(await authorize(setup, hub));
    const path = { url: new URL("/other", setup.server.url) };
    assert.equal(await bear(hub, path), undefined);
    assert.equal(await bear(hub, setup.server, "again"), undefined);
  });
});

describe("the manifest's secret of a client", TEST_OPTIONS, () => {
  it("is not given to another authorization server than before unless the manifest says so", async () => {
    const setup = await setUpAuthorization({ methods: ["client_secret_post"] });
    const more = knowClient(setup);
    const authorizer = setup.openHub();
    await bearerTokenOf(authorizer, setup.server, more);
    const other = await TestAuthorizationServer.open({ methods: ["client_secret_post"] });
    closedAfterTests.push(other);
    setup.server.authorizationServer = other;
    const moved = authorize(setup, authorizer, more);
    await assert.rejects(moved, isHubError(/oauth\.issuer/));
    assert.deepEqual(other.requestsTo("/token"), []);
    const named = { ...more, oauth: { ...more.oauth, issuer: other.url } };
    const { clients } = setup.authorizationServer;
    for (const [id, client] of clients) other.clients.set(id, client);
    assert.equal(await setup.server.statusFor(await authorize(setup, authorizer, named)), 200);
  });

  it("is not shown when the authorization server calls its error by it", async () => {
    const setup = await setUpAuthorization({ methods: ["client_secret_post"] });
    const more = knowClient(setup, "canary-of-a-client");
    const body = `{"error":"canary-of-a-client"}`;
    setup.authorizationServer.settings.tokenError = { status: 400, body };
    const target = {
      ...resolvedProtectedServer(setup.server, more),
      secrets: ["canary-of-a-client"],
    };
    const run = setup
      .openHub()
      .authorize(protectedServerSpec(setup.server, more), target, CHALLENGE, {
        signal: NEVER_ABORTED,
        onProgress: () => {},
      });
    await assert.rejects(run, (error: unknown) => {
      assert.doesNotMatch(String(error), /canary/);
      return isHubError(/\[redacted\]/)(error);
    });
  });

  it("that is a key of another kind than its algorithm is the manifest's fault", async () => {
    const setup = await setUpAuthorization({ methods: ["private_key_jwt"] });
    const { privateKey: key } = generateKeyPairSync("rsa", { modulusLength: 2048 });
    const privateKey = key.export({ type: "pkcs8", format: "pem" });
    const grant = "clientCredentials" as const;
    const oauth = { clientId: "ours", privateKey, keyAlgorithm: "ES256", grant };
    await assert.rejects(authorize(setup, setup.openHub(), { oauth }), isHubError(/keyAlgorithm/));
  });
});
