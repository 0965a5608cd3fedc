import assert from "node:assert/strict";
import { generateKeyPairSync } from "node:crypto";
import { describe, it } from "node:test";
import type { OAuthAuthorizer } from "../../src/auth/oauth-authorizer.ts";
import { HubError } from "../../src/base/errors.ts";
import { TestAuthorizationServer } from "../fixtures/authorization-server.ts";
import {
  ProtectedServer,
  protectedServerSpec,
  resolvedProtectedServer,
} from "../fixtures/protected-server.ts";
import { poll } from "../harness/wait.ts";
import {
  CHALLENGE,
  TEST_OPTIONS,
  closedAfterTests,
  isHubError,
  NEVER_ABORTED,
} from "../fixtures/authorization-setup.ts";
import { setUp, wanting } from "../harness/login.ts";

const POSTED = { methods: ["client_secret_post"] };
const QUIET = { signal: NEVER_ABORTED, onProgress: (): void => {} };
/** A client that gets tokens by itself. */
const clientWith = (clientSecret: string) =>
  ({
    auth: "oauth",
    oauth: { clientId: "ours", clientSecret, grant: "clientCredentials" },
  }) as const;

describe("a server that says too much", TEST_OPTIONS, () => {
  const many = (text: string): string[] => Array.from({ length: 10_000 }, (_, at) => text + at);

  const isShort = (pattern: RegExp) => (error: unknown) => {
    assert.ok(String(error).length < 1000, String(error).slice(0, 1000));
    return isHubError(pattern)(error);
  };

  it("of its authorization servers fills no error with that", async () => {
    const { logIn } = await setUp({}, { issuers: many("https://auth.example/") });
    const run = logIn(undefined, { oauth: { issuer: "https://trusted.example" } });
    await assert.rejects(run, isShort(/auth\.example\/0.*trusted\.example/));
  });

  it("of its scopes sends nobody to a page with an endless address", async () => {
    const { logIn, openedUrls } = await setUp({}, { scopes: many("scope:") });
    await logIn();
    assert.ok((openedUrls[0] ?? "").length < 8000);
  });

  it("of what it lacks fills no error with that", async () => {
    const { logIn, hub } = await setUp();
    const scope = many("s").slice(0, 2000).join(" ");
    await logIn(hub, {}, wanting(scope));
    await assert.rejects(logIn(hub, {}, wanting(scope, 403)), isShort(/already requested.*s0 s1/));
  });
});

describe("the life of a token", TEST_OPTIONS, () => {
  for (const life of [null, 0, -1, "", 1e300]) {
    it(`is not known if the authorization server says ${JSON.stringify(life)}`, async () => {
      const { logIn, tokenOf, hub, openHub, time, refreshes, spec, target } = await setUp({
        tokenMembers: { expires_in: life },
      });
      const token = await logIn(hub);
      time.now += 1000;
      assert.equal(await tokenOf(hub), token);
      assert.equal(await tokenOf(), token);
      assert.equal(refreshes(), 0);
      const standing = await openHub().getStatus(spec, target);
      assert.equal(standing.kind, "authorized");
      assert.ok("expires" in standing && standing.expires === undefined);
    });
  }

  it("may be spelled as a text", async () => {
    const { logIn, tokenOf, hub, time } = await setUp({ tokenMembers: { expires_in: "3600" } });
    const token = await logIn(hub);
    time.now += 3_500_000;
    assert.equal(await tokenOf(hub), token);
    time.now += 50_000;
    assert.notEqual(await tokenOf(hub), token);
  });

  it("is lived to its end where there is nothing to renew it with", async () => {
    const settings = { tokenLifetime: 3600, omitsRefreshTokens: true };
    const { logIn, tokenOf, hub, time, authorizationServer, renew } = await setUp(settings);
    const token = await logIn(hub);
    time.now += 3_599_000;
    assert.equal(await tokenOf(hub), token);
    authorizationServer.expireAccessTokens();
    assert.equal(await renew(hub), false);
    assert.equal(await tokenOf(hub), undefined);
  });
});

describe("a token that was renewed", TEST_OPTIONS, () => {
  it("is used though it cannot be kept, and kept as soon as that can be done", async () => {
    const { logIn, tokenOf, assertBears, hub, store, authorizationServer, renew } = await setUp({
      rotatesRefreshTokens: true,
    });
    const first = await logIn(hub);
    const { set } = store;
    store.set = () => Promise.reject(new HubError("storeBroken", "The disk is full."));
    for (let round = 0; round < 2; round++) {
      authorizationServer.expireAccessTokens();
      assert.equal(await renew(hub), true);
      await assertBears(hub);
    }
    assert.equal(await tokenOf(), first);
    store.set = set;
    authorizationServer.expireAccessTokens();
    assert.equal(await renew(hub), true);
    await assertBears(hub);
    assert.equal(await tokenOf(), await tokenOf(hub));
    assert.equal(authorizationServer.hasRevoked, false);
  });

  it("in vain is kept when the manifest's client is refused: its secret may be a slip", async () => {
    const { logIn, hub, renew, knowClient, authorizationServer } = await setUp(POSTED);
    knowClient("ours", "right");
    const right = { oauth: { clientId: "ours", clientSecret: "right" } };
    await logIn(hub, right);
    authorizationServer.expireAccessTokens();
    const run = renew(hub, { oauth: { clientId: "ours", clientSecret: "wrong" } });
    await assert.rejects(run, isHubError(/oauth\.clientId/, "serverRefused"));
    assert.equal(await renew(hub, right), true);
  });

  it("and refused, again and again, is not renewed for ever", async () => {
    const { logIn, hub, renew, refreshes, time } = await setUp({ rotatesRefreshTokens: true });
    await logIn(hub);
    const renewed: boolean[] = [];
    for (let round = 0; round < 15; round++) renewed.push(await renew(hub));
    assert.equal(renewed.indexOf(false), 10);
    assert.equal(refreshes(), 10);
    time.now += 61_000;
    assert.equal(await renew(hub), true);
  });

  it("is not waited for at a server that takes requests and does not answer", async () => {
    const settings = { ...POSTED, tokenLifetime: 60 };
    const { tokenOf, assertBears, hub, time, server, clock, knowClient } = await setUp(settings);
    knowClient("ours", "a secret");
    const more = clientWith("a secret");
    await tokenOf(hub, more);
    time.now += 61_000;
    server.state.isSilent = true;
    const waiting = tokenOf(hub, more);
    waiting.catch(() => {});
    const findLimit = () => clock.pendingDelays.find((ms) => ms === 10_000);
    await poll(5000, () => "a limit", findLimit);
    clock.advanceTo(10_000);
    await assert.rejects(waiting, isHubError(/did not answer within 10 s/, "unreachable"));
    server.state.isSilent = false;
    await assertBears(hub, more);
  });
});

describe("a login by hand", TEST_OPTIONS, () => {
  type Place = Pick<Awaited<ReturnType<typeof setUp>>, "openHub" | "spec" | "target">;
  const logInByHand = ({ openHub, spec, target }: Place): Promise<void> =>
    openHub().login(spec, target, { status: 401, header: "Bearer" }, QUIET, undefined);

  it("is found by a hub that has looked before, when the server asks for it", async () => {
    const setup = await setUp();
    const { hub, tokenOf, renew, assertBears, openedUrls } = setup;
    assert.equal(await tokenOf(hub), undefined);
    await logInByHand(setup);
    assert.equal(await renew(hub), true);
    await assertBears(hub);
    assert.equal(openedUrls.length, 1);
  });

  it("is found by a hub that has looked before and asks nothing without one", async () => {
    const setup = await setUp();
    const { hub, tokenOf, assertBears } = setup;
    const more = { auth: "oauth" } as const;
    await assert.rejects(tokenOf(hub, more), isHubError(/toolmux auth login/));
    await logInByHand(setup);
    await assertBears(hub, more);
  });

  it("is found by a hub that has asked too often", async () => {
    const setup = await setUp({ omitsRefreshTokens: true });
    const { hub, logIn, assertLogsIn, openedUrls } = setup;
    for (let round = 0; round < 3; round++) await logIn(hub);
    await assert.rejects(logIn(hub), isHubError(/rejects the tokens/));
    await logInByHand(setup);
    await assertLogsIn(hub);
    assert.equal(openedUrls.length, 4);
  });

  it("has its whole time when it had to wait for another one", async () => {
    const setup = await setUp();
    const { openHub, clock, logIn, assertBears } = setup;
    const hub = openHub(async () => {
      clock.advanceTo(100_000);
      late = logInByHand(setup);
      await new Promise(setImmediate);
      clock.advanceTo(120_000);
    });
    let late: Promise<void> | undefined;
    await assert.rejects(logIn(hub), isHubError(/within 2 min/));
    await late;
    await assertBears();
  });
});

describe("a login that is given up", TEST_OPTIONS, () => {
  const metadata = "/.well-known/oauth-authorization-server";
  for (const step of [metadata, "/register", "/authorize", "/token"]) {
    it(`while ${step} is asked leaves nobody listening and nothing kept`, async () => {
      const { authorizationServer, authorizeUntil, pageLoads, requestsTo, tokenOf, assertLogsIn } =
        await setUp();
      const abort = new AbortController();
      const reason = new HubError("cancelled", "enough");
      const { requests } = authorizationServer;
      const note = requests.push.bind(requests);
      requests.push = (...all) => {
        if (all.some(({ path }) => path === step)) abort.abort(reason);
        return note(...all);
      };
      await assert.rejects(authorizeUntil(abort.signal), (error) => error === reason);
      await Promise.allSettled(pageLoads.splice(0));
      const [registered] = requestsTo("/register");
      const [back] = (registered?.json["redirect_uris"] ?? []) as readonly string[];
      if (back !== undefined) await assert.rejects(fetch(back));
      assert.equal(await tokenOf(), undefined);
      await assertLogsIn();
    });
  }
});

describe("a token that another hub has just got", TEST_OPTIONS, () => {
  it("is taken though it is for less than the server named: nobody has refused it yet", async () => {
    const { hub, openHub, tokenOf, logIn, openedUrls } = await setUp({ withheldScopes: ["b"] });
    const other = openHub();
    assert.equal(await tokenOf(other), undefined);
    await logIn(hub, {}, wanting("a b"));
    await logIn(other, {}, wanting("a b"));
    assert.equal(openedUrls.length, 1);
  });
});

describe("servers that share something", TEST_OPTIONS, () => {
  const bear = async (
    by: OAuthAuthorizer,
    place: { readonly url: URL },
    name = "guarded",
  ): Promise<string | undefined> => {
    const spec = { ...protectedServerSpec(place), name };
    const credentials = by.credentialsFor(spec, resolvedProtectedServer(place));
    const headers = await credentials.getHeaders(NEVER_ABORTED);
    return headers["Authorization"]?.replace(/^Bearer /, "");
  };

  it("such as their authorization server are logged in to at the same time, each by itself", async () => {
    const { hub, server, authorizationServer, logIn } = await setUp();
    const other = await ProtectedServer.open(authorizationServer);
    closedAfterTests.push(other);
    const spec = { ...protectedServerSpec(other), name: "other" };
    const second = hub.authorize(spec, resolvedProtectedServer(other), CHALLENGE, QUIET);
    await Promise.all([logIn(hub), second]);
    const [one, two] = [await bear(hub, server), await bear(hub, other, "other")];
    assert.notEqual(one, two);
    assert.equal(await server.statusFor(one), 200);
    assert.equal(await other.statusFor(two), 200);
  });

  it("such as all but a name, or a path, have tokens of their own", async () => {
    const { hub, server, logIn } = await setUp();
    assert.ok(await logIn(hub));
    assert.equal(await bear(hub, { url: new URL("/other", server.url) }), undefined);
    assert.equal(await bear(hub, server, "again"), undefined);
  });
});

describe("the manifest's secret of a client", TEST_OPTIONS, () => {
  it("is not given to another authorization server than before unless that is named", async () => {
    const { hub, server, authorizationServer, knowClient, tokenOf, logIn, assertLogsIn } =
      await setUp(POSTED);
    knowClient("ours", "a secret");
    const more = clientWith("a secret");
    await tokenOf(hub, more);
    const other = await TestAuthorizationServer.open(POSTED);
    closedAfterTests.push(other);
    server.authorizationServer = other;
    await assert.rejects(logIn(hub, more), isHubError(/oauth\.issuer/));
    assert.deepEqual(other.requestsTo("/token"), []);
    for (const [id, client] of authorizationServer.clients) other.clients.set(id, client);
    await assertLogsIn(hub, { ...more, oauth: { ...more.oauth, issuer: other.url } });
  });

  it("is not shown when the authorization server calls its error by it", async () => {
    const secret = "canary-of-a-client";
    const tokenError = { status: 400, body: `{"error":"${secret}"}` };
    const { hub, server, knowClient } = await setUp({ ...POSTED, tokenError });
    knowClient("ours", secret);
    const more = clientWith(secret);
    const target = { ...resolvedProtectedServer(server, more), secrets: [secret] };
    const run = hub.authorize(protectedServerSpec(server, more), target, CHALLENGE, QUIET);
    await assert.rejects(run, (error: unknown) => {
      assert.doesNotMatch(String(error), /canary/);
      return isHubError(/\[redacted\]/)(error);
    });
  });

  it("that is a key of another kind than its algorithm is the manifest's fault", async () => {
    const { logIn } = await setUp({ methods: ["private_key_jwt"] });
    const { privateKey: key } = generateKeyPairSync("rsa", { modulusLength: 2048 });
    const privateKey = key.export({ type: "pkcs8", format: "pem" });
    const grant = "clientCredentials" as const;
    const oauth = { clientId: "ours", privateKey, keyAlgorithm: "ES256", grant };
    await assert.rejects(logIn(undefined, { oauth }), isHubError(/keyAlgorithm/));
  });
});
