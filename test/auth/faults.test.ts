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
  scene: AuthorizationSetup,
  authorizer: OAuthAuthorizer,
  more: Said = {},
): Promise<boolean> {
  return authorizer
    .credentialsFor(
      protectedServerSpec(scene.server, more),
      resolvedProtectedServer(scene.server, more),
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
    const scene = await setUpAuthorization({}, { issuers: many("https://auth.example/") });
    const more = { oauth: { issuer: "https://trusted.example" } };
    await assert.rejects(authorize(scene, scene.openHub(), more), (error: unknown) => {
      assert.ok(String(error).length < 1000, String(error).slice(0, 1000));
      return isHubError(/auth\.example\/0.*trusted\.example/)(error);
    });
  });

  it("of its scopes sends nobody to a page with an endless address", async () => {
    const scene = await setUpAuthorization({}, { scopes: many("scope:") });
    await authorize(scene, scene.openHub());
    assert.ok((scene.openedUrls[0] ?? "").length < 8000);
  });

  it("of what it lacks fills no error with that", async () => {
    const scene = await setUpAuthorization();
    const authorizer = scene.openHub();
    const scope = many("s").slice(0, 2000).join(" ");
    await authorize(scene, authorizer, {}, wanting(scope, 401));
    await assert.rejects(
      authorize(scene, authorizer, {}, wanting(scope, 403)),
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
      const scene = await setUpAuthorization({ tokenMembers: { expires_in: life } });
      const authorizer = scene.openHub();
      const token = await authorize(scene, authorizer);
      scene.time.now += 1000;
      assert.equal(await bearerTokenOf(authorizer, scene.server), token);
      assert.equal(await bearerTokenOf(scene.openHub(), scene.server), token);
      assert.equal(refreshes(scene), 0);
      const standing = await scene
        .openHub()
        .getStatus(protectedServerSpec(scene.server), resolvedProtectedServer(scene.server));
      assert.equal(standing.kind, "authorized");
      assert.ok("expires" in standing && standing.expires === undefined);
    });
  }

  it("may be spelled as a text", async () => {
    const scene = await setUpAuthorization({ tokenMembers: { expires_in: "3600" } });
    const authorizer = scene.openHub();
    const token = await authorize(scene, authorizer);
    scene.time.now += 3_500_000;
    assert.equal(await bearerTokenOf(authorizer, scene.server), token);
    scene.time.now += 50_000;
    assert.notEqual(await bearerTokenOf(authorizer, scene.server), token);
  });

  it("is lived to its end where there is nothing to renew it with", async () => {
    const scene = await setUpAuthorization({ tokenLifetime: 3600, omitsRefreshTokens: true });
    const authorizer = scene.openHub();
    const token = await authorize(scene, authorizer);
    scene.time.now += 3_599_000;
    assert.equal(await bearerTokenOf(authorizer, scene.server), token);
    scene.authorizationServer.expireAccessTokens();
    assert.equal(await renew(scene, authorizer), false);
    assert.equal(await bearerTokenOf(authorizer, scene.server), undefined);
  });
});

describe("a token that was renewed", TEST_OPTIONS, () => {
  it("is used though it cannot be kept, and kept as soon as that can be done", async () => {
    const scene = await setUpAuthorization({ rotatesRefreshTokens: true });
    const authorizer = scene.openHub();
    const first = await authorize(scene, authorizer);
    const { set } = scene.store;
    scene.store.set = () => Promise.reject(new HubError("storeBroken", "The disk is full."));
    for (let round = 0; round < 2; round++) {
      scene.authorizationServer.expireAccessTokens();
      assert.equal(await renew(scene, authorizer), true);
      assert.equal(
        await scene.server.statusFor(await bearerTokenOf(authorizer, scene.server)),
        200,
      );
    }
    assert.equal(await bearerTokenOf(scene.openHub(), scene.server), first);
    scene.store.set = set;
    scene.authorizationServer.expireAccessTokens();
    assert.equal(await renew(scene, authorizer), true);
    const token = await bearerTokenOf(authorizer, scene.server);
    assert.equal(await scene.server.statusFor(token), 200);
    assert.equal(await bearerTokenOf(scene.openHub(), scene.server), token);
    assert.equal(scene.authorizationServer.hasRevoked, false);
  });

  it("in vain is kept when the manifest's client is refused: its secret may be a slip", async () => {
    const scene = await setUpAuthorization({ methods: ["client_secret_post"] });
    const secret = "right";
    scene.authorizationServer.clients.set("ours", {
      secret,
      redirects: undefined,
      expires: undefined,
    });
    const right = { oauth: { clientId: "ours", clientSecret: secret } };
    const authorizer = scene.openHub();
    await authorize(scene, authorizer, right);
    scene.authorizationServer.expireAccessTokens();
    const wrong = { oauth: { clientId: "ours", clientSecret: "wrong" } };
    await assert.rejects(
      renew(scene, authorizer, wrong),
      isHubError(/oauth\.clientId/, "serverRefused"),
    );
    assert.equal(await renew(scene, authorizer, right), true);
  });

  it("and refused, again and again, is not renewed for ever", async () => {
    const scene = await setUpAuthorization({ rotatesRefreshTokens: true });
    const authorizer = scene.openHub();
    await authorize(scene, authorizer);
    const renewed: boolean[] = [];
    for (let round = 0; round < 15; round++) renewed.push(await renew(scene, authorizer));
    assert.equal(renewed.indexOf(false), 10);
    assert.equal(refreshes(scene), 10);
    scene.time.now += 61_000;
    assert.equal(await renew(scene, authorizer), true);
  });

  it("is not waited for at a server that takes requests and does not answer", async () => {
    const scene = await setUpAuthorization({ methods: ["client_secret_post"], tokenLifetime: 60 });
    const more = knowClient(scene);
    const authorizer = scene.openHub();
    await bearerTokenOf(authorizer, scene.server, more);
    scene.time.now += 61_000;
    scene.server.state.isSilent = true;
    const waiting = bearerTokenOf(authorizer, scene.server, more);
    waiting.catch(() => {});
    await poll(
      5000,
      () => "a limit",
      () => scene.clock.pendingDelays.find((ms) => ms === 10_000),
    );
    scene.clock.advanceTo(10_000);
    await assert.rejects(waiting, isHubError(/did not answer within 10 s/, "unreachable"));
    scene.server.state.isSilent = false;
    assert.equal(
      await scene.server.statusFor(await bearerTokenOf(authorizer, scene.server, more)),
      200,
    );
  });
});

describe("a login by hand", TEST_OPTIONS, () => {
  const login = (scene: AuthorizationSetup, by: OAuthAuthorizer): Promise<void> =>
    by.login(
      protectedServerSpec(scene.server),
      resolvedProtectedServer(scene.server),
      { status: 401, header: "Bearer" },
      { signal: NEVER_ABORTED, onProgress: () => {} },
      undefined,
    );

  it("is found by a hub that has looked before, when the server asks for it", async () => {
    const scene = await setUpAuthorization();
    const hub = scene.openHub();
    assert.equal(await bearerTokenOf(hub, scene.server), undefined);
    await login(scene, scene.openHub());
    assert.equal(await renew(scene, hub), true);
    assert.equal(await scene.server.statusFor(await bearerTokenOf(hub, scene.server)), 200);
    assert.equal(scene.openedUrls.length, 1);
  });

  it("is found by a hub that has looked before and asks nothing without one", async () => {
    const scene = await setUpAuthorization();
    const hub = scene.openHub();
    const more = { auth: "oauth" as const };
    await assert.rejects(bearerTokenOf(hub, scene.server, more), isHubError(/toolmux auth login/));
    await login(scene, scene.openHub());
    assert.equal(await scene.server.statusFor(await bearerTokenOf(hub, scene.server, more)), 200);
  });

  it("is found by a hub that has asked too often", async () => {
    const scene = await setUpAuthorization({ omitsRefreshTokens: true });
    const hub = scene.openHub();
    for (let round = 0; round < 3; round++) await authorize(scene, hub);
    await assert.rejects(authorize(scene, hub), isHubError(/does not take tokens/));
    await login(scene, scene.openHub());
    assert.equal(await scene.server.statusFor(await authorize(scene, hub)), 200);
    assert.equal(scene.openedUrls.length, 4);
  });

  it("has its whole time when it had to wait for another one", async () => {
    const scene = await setUpAuthorization();
    const hub = scene.openHub(async () => {
      scene.clock.advanceTo(100_000);
      late = login(scene, scene.openHub());
      await new Promise(setImmediate);
      scene.clock.advanceTo(120_000);
    });
    let late: Promise<void> | undefined;
    await assert.rejects(authorize(scene, hub), isHubError(/within 120 s/));
    await late;
    assert.equal(
      await scene.server.statusFor(await bearerTokenOf(scene.openHub(), scene.server)),
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
      const scene = await setUpAuthorization();
      const abort = new AbortController();
      const reason = new HubError("cancelled", "enough");
      const { requests: noted } = scene.authorizationServer;
      const note = noted.push.bind(noted);
      noted.push = (...all) => {
        if (all.some(({ path }) => path === step)) abort.abort(reason);
        return note(...all);
      };
      const run = scene
        .openHub()
        .authorize(
          protectedServerSpec(scene.server),
          resolvedProtectedServer(scene.server),
          CHALLENGE,
          {
            signal: abort.signal,
            onProgress: () => {},
          },
        );
      await assert.rejects(run, (error) => error === reason);
      await Promise.allSettled(scene.pageLoads.splice(0));
      const [registered] = scene.authorizationServer.requestsTo("/register");
      const [back] = (registered?.json["redirect_uris"] ?? []) as readonly string[];
      if (back !== undefined) await assert.rejects(fetch(back));
      assert.equal(await bearerTokenOf(scene.openHub(), scene.server), undefined);
      assert.equal(await scene.server.statusFor(await authorize(scene, scene.openHub())), 200);
    });
  }
});

describe("a token that another hub has just got", TEST_OPTIONS, () => {
  it("is taken though it is for less than the server named: nobody has refused it yet", async () => {
    const scene = await setUpAuthorization({ withheldScopes: ["b"] });
    const [one, two] = [scene.openHub(), scene.openHub()];
    assert.equal(await bearerTokenOf(two, scene.server), undefined);
    await authorize(scene, one, {}, wanting("a b", 401));
    await authorize(scene, two, {}, wanting("a b", 401));
    assert.equal(scene.openedUrls.length, 1);
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
    const scene = await setUpAuthorization();
    const other = await ProtectedServer.open(scene.authorizationServer);
    closedAfterTests.push(other);
    const hub = scene.openHub();
    const name = "other";
    await Promise.all([
      authorize(scene, hub),
      hub.authorize(
        { ...protectedServerSpec(other), name },
        resolvedProtectedServer(other),
        CHALLENGE,
        quiet,
      ),
    ]);
    const [one, two] = [await bear(hub, scene.server), await bear(hub, other, name)];
    assert.notEqual(one, two);
    assert.equal(await scene.server.statusFor(one), 200);
    assert.equal(await other.statusFor(two), 200);
  });

  it("such as all but a name, or a path, have tokens of their own", async () => {
    const scene = await setUpAuthorization();
    const hub = scene.openHub();
    assert.ok(await authorize(scene, hub));
    const path = { url: new URL("/other", scene.server.url) };
    assert.equal(await bear(hub, path), undefined);
    assert.equal(await bear(hub, scene.server, "again"), undefined);
  });
});

describe("the manifest's secret of a client", TEST_OPTIONS, () => {
  it("is not given to another authorization server than before unless the manifest says so", async () => {
    const scene = await setUpAuthorization({ methods: ["client_secret_post"] });
    const more = knowClient(scene);
    const authorizer = scene.openHub();
    await bearerTokenOf(authorizer, scene.server, more);
    const other = await TestAuthorizationServer.open({ methods: ["client_secret_post"] });
    closedAfterTests.push(other);
    scene.server.authorizationServer = other;
    const moved = authorize(scene, authorizer, more);
    await assert.rejects(moved, isHubError(/oauth\.issuer/));
    assert.deepEqual(other.requestsTo("/token"), []);
    const named = { ...more, oauth: { ...more.oauth, issuer: other.url } };
    const { clients } = scene.authorizationServer;
    for (const [id, client] of clients) other.clients.set(id, client);
    assert.equal(await scene.server.statusFor(await authorize(scene, authorizer, named)), 200);
  });

  it("is not shown when the authorization server calls its error by it", async () => {
    const scene = await setUpAuthorization({ methods: ["client_secret_post"] });
    const more = knowClient(scene, "canary-of-a-client");
    const body = `{"error":"canary-of-a-client"}`;
    scene.authorizationServer.settings.tokenError = { status: 400, body };
    const target = {
      ...resolvedProtectedServer(scene.server, more),
      secrets: ["canary-of-a-client"],
    };
    const run = scene
      .openHub()
      .authorize(protectedServerSpec(scene.server, more), target, CHALLENGE, {
        signal: NEVER_ABORTED,
        onProgress: () => {},
      });
    await assert.rejects(run, (error: unknown) => {
      assert.doesNotMatch(String(error), /canary/);
      return isHubError(/\[redacted\]/)(error);
    });
  });

  it("that is a key of another kind than its algorithm is the manifest's fault", async () => {
    const scene = await setUpAuthorization({ methods: ["private_key_jwt"] });
    const { privateKey: key } = generateKeyPairSync("rsa", { modulusLength: 2048 });
    const privateKey = key.export({ type: "pkcs8", format: "pem" });
    const grant = "clientCredentials" as const;
    const oauth = { clientId: "ours", privateKey, keyAlgorithm: "ES256", grant };
    await assert.rejects(authorize(scene, scene.openHub(), { oauth }), isHubError(/keyAlgorithm/));
  });
});
