import assert from "node:assert/strict";
import { generateKeyPairSync } from "node:crypto";
import { once } from "node:events";
import { get, type IncomingMessage } from "node:http";
import { createServer } from "node:net";
import { describe, it } from "node:test";
import type { OAuthAuthorizer } from "../../src/auth/oauth-authorizer.ts";
import { HubError } from "../../src/base/errors.ts";
import type { AuthChallenge } from "../../src/transport/http/target.ts";
import { Authority, type Switches } from "../fixtures/authorization-server.ts";
import { browse } from "../fixtures/browser.ts";
import { type Demands, Guarded, remote, resolved } from "../fixtures/protected-server.ts";
import {
  authorize,
  borne,
  CHALLENGE,
  LIMIT,
  opened,
  refusing,
  type Scene,
  setScene,
  SIGNAL,
} from "../fixtures/authorization-setup.ts";

describe("an authorization that a person gives", LIMIT, () => {
  it("leads to a token that the server takes, and is told of step by step", async () => {
    const scene = await setScene();
    const token = await authorize(scene, scene.open());
    assert.equal(await scene.server.try(token), 200);
    const said = ["starting", "openingBrowser", "waitingForCallback", "exchangingToken"];
    assert.deepEqual(scene.steps, said);
  });

  it("says in both requests what the token is for, and proves to be who began (PKCE)", async () => {
    const scene = await setScene();
    await authorize(scene, scene.open());
    const [login] = scene.authority.at("/authorize");
    const [exchange] = scene.authority.at("/token");
    assert.equal(login?.parameters.get("resource"), scene.server.resource);
    assert.equal(exchange?.parameters.get("resource"), scene.server.resource);
    assert.equal(login?.parameters.get("code_challenge_method"), "S256");
    assert.match(login?.parameters.get("state") ?? "", /^[\w-]{43}$/);
    assert.ok(exchange?.parameters.get("code_verifier"));
  });

  it("registers as a program on somebody's machine that is sent back to a port of its own", async () => {
    const scene = await setScene();
    await authorize(scene, scene.open());
    const [registration] = scene.authority.at("/register");
    assert.equal(registration?.json["application_type"], "native");
    assert.deepEqual(registration?.json["grant_types"], ["authorization_code", "refresh_token"]);
    assert.match(
      String(registration?.json["redirect_uris"]),
      /^http:\/\/127\.0\.0\.1:\d+\/callback$/,
    );
  });

  it("is still there for the next hub, which asks nobody", async () => {
    const scene = await setScene();
    const token = await authorize(scene, scene.open());
    assert.equal(await borne(scene.open(), scene.server), token);
    assert.equal(scene.visited.length, 1);
  });

  it("is not used for another server of the same name", async () => {
    const scene = await setScene();
    const authorizer = scene.open();
    await authorize(scene, authorizer);
    const other = await Guarded.open(scene.authority, {});
    opened.push(other);
    assert.equal(await borne(scene.open(), other), undefined);
  });

  it("is asked for once by all who want it at the same time", async () => {
    const scene = await setScene();
    const authorizer = scene.open();
    const tokens = await Promise.all([1, 2, 3].map(() => authorize(scene, authorizer)));
    assert.equal(new Set(tokens).size, 1);
    assert.equal(scene.visited.length, 1);
  });

  it("is asked for once by two hubs: the second finds what the first has got", async () => {
    const scene = await setScene();
    const tokens = await Promise.all([
      authorize(scene, scene.open()),
      authorize(scene, scene.open()),
    ]);
    assert.equal(new Set(tokens).size, 1);
    assert.equal(scene.visited.length, 1);
  });

  it("is asked for again with the same client, sent back to the same port", async () => {
    const scene = await setScene();
    await authorize(scene, scene.open());
    scene.authority.revokeAll();
    await authorize(scene, scene.open());
    assert.equal(scene.authority.at("/register").length, 1);
    assert.equal(scene.visited.length, 2);
  });

  it("is given up when nobody comes back within 120 s, and names what to run", async () => {
    const scene = await setScene();
    const authorizer = scene.open(() => {
      assert.deepEqual(scene.clock.armed, [120_000]);
      scene.clock.advanceTo(120_000);
      return Promise.resolve();
    });
    const why = /within 120 s.*toolmux auth login guarded/;
    await assert.rejects(authorize(scene, authorizer), refusing(why));
  });

  it("ends with whoever wanted it, and the port is free again", async () => {
    const scene = await setScene();
    const abort = new AbortController();
    const reason = new HubError("cancelled", "enough");
    const authorizer = scene.open(() => {
      abort.abort(reason);
      return Promise.resolve();
    });
    const run = authorizer.authorize(remote(scene.server), resolved(scene.server), CHALLENGE, {
      signal: abort.signal,
      onProgress: () => {},
    });
    await assert.rejects(run, (error) => error === reason);
    const back = new URL(scene.visited[0] ?? "").searchParams.get("redirect_uri") ?? "";
    await assert.rejects(fetch(back));
  });

  it("ends with whoever wanted it, also while an answer is waited for", async () => {
    const gate = new Promise<void>(() => {});
    const scene = await setScene({ gate });
    const abort = new AbortController();
    const reason = new HubError("cancelled", "enough");
    const run = scene.open().authorize(remote(scene.server), resolved(scene.server), CHALLENGE, {
      signal: abort.signal,
      onProgress: ({ step }) => {
        if (step === "exchangingToken") abort.abort(reason);
      },
    });
    await assert.rejects(run, (error) => error === reason);
  });

  it("goes on for the others when one of them does not want it any more", async () => {
    const scene = await setScene();
    const abort = new AbortController();
    const authorizer = scene.open(async (url) => {
      abort.abort(new HubError("cancelled", "enough"));
      await browse(url);
    });
    const first = authorizer.authorize(remote(scene.server), resolved(scene.server), CHALLENGE, {
      signal: abort.signal,
      onProgress: () => {},
    });
    const second = authorize(scene, authorizer);
    await assert.rejects(first, refusing(/enough/, "cancelled"));
    assert.equal(await scene.server.try(await second), 200);
  });
});

describe("the callback", LIMIT, () => {
  const answers: readonly [name: string, change: (back: URL) => void][] = [
    ["another state", (back) => back.searchParams.set("state", "x".repeat(43))],
    ["no state", (back) => back.searchParams.delete("state")],
    ["another path", (back) => (back.pathname = "/")],
    ["neither code nor error", (back) => back.searchParams.delete("code")],
  ];
  for (const [name, change] of answers) {
    it(`takes no answer with ${name}, and goes on waiting`, async () => {
      const scene = await setScene();
      const authorizer = scene.open(async (url) => {
        const sent = await fetch(url, { redirect: "manual" });
        const back = new URL(sent.headers.get("location") ?? "");
        const wrong = new URL(back);
        change(wrong);
        assert.equal((await fetch(wrong)).status, 404);
        assert.equal((await fetch(back, { method: "POST" })).status, 404);
        assert.equal((await fetch(back)).status, 200);
      });
      assert.equal(await scene.server.try(await authorize(scene, authorizer)), 200);
    });
  }
});

describe("the callback's address", LIMIT, () => {
  it("is that of this machine alone: pages elsewhere that have a name for it get nothing", async () => {
    const scene = await setScene();
    const authorizer = scene.open(async (url) => {
      const sent = await fetch(url, { redirect: "manual" });
      const back = new URL(sent.headers.get("location") ?? "");
      const asked = get(back, { headers: { host: "evil.example" } });
      const [answer] = (await once(asked, "response")) as [IncomingMessage];
      answer.resume();
      assert.equal(answer.statusCode, 404);
      assert.equal((await fetch(back)).status, 200);
    });
    assert.equal(await scene.server.try(await authorize(scene, authorizer)), 200);
  });

  it("is another one if somebody has taken that of the last login: then the client is registered anew", async () => {
    const scene = await setScene();
    await authorize(scene, scene.open());
    const [before] = scene.authority.at("/authorize");
    const { port } = new URL(before?.parameters.get("redirect_uri") ?? "");
    const other = createServer();
    await new Promise<void>((resolve) => other.listen(Number(port), "127.0.0.1", resolve));
    scene.authority.revokeAll();
    assert.equal(await scene.server.try(await authorize(scene, scene.open())), 200);
    await new Promise((resolve) => other.close(resolve));
    assert.equal(scene.authority.at("/register").length, 2);
  });
});

describe("what an authorization server does wrong", LIMIT, () => {
  const wrongs: readonly [name: string, Switches, Demands, why: RegExp][] = [
    [
      "names another issuer in its metadata",
      { issuer: "https://elsewhere.example" },
      {},
      /another authorization server/,
    ],
    ["does not protect codes", { pkce: null }, {}, /does not protect codes/],
    ["protects codes by nothing worth it", { pkce: ["plain"] }, {}, /does not protect codes/],
    ["registers nobody", { registers: false }, {}, /oauth\.clientId/],
    ["has so much to say that it does not end", { padding: 2 << 20 }, {}, /without end/],
    ["is not to be found", {}, { issuers: ["http://127.0.0.1:9/nobody"] }, /127\.0\.0\.1:9/],
    [
      "sends people to a script",
      { loginAt: "javascript:alert(1)" },
      {},
      /did not answer as it should|none of HTTP/,
    ],
    [
      "sends people where nothing is encrypted",
      { loginAt: "http://auth.example/" },
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
      const scene = await setScene(switches, demands);
      const code = name === "is not to be found" ? "unreachable" : "unauthorized";
      await assert.rejects(authorize(scene, scene.open()), refusing(why, code));
      assert.deepEqual(scene.visited, []);
    });
  }

  const answers: readonly [name: string, Switches, why: RegExp][] = [
    ["comes back in another's name", { iss: "wrong" }, /another authorization server/],
    [
      "does not say who it is, which it promised",
      { iss: "absent", promisesIss: true },
      /another authorization server/,
    ],
    ["says no", { refusal: "access_denied" }, /was not given/],
    ["says that it cannot", { refusal: "server_error" }, /"server_error"/],
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
    ["is not there any more", { tokenAt: "http://127.0.0.1:9/token" }, /127\.0\.0\.1:9/],
    ["fails", { tokenError: { status: 500, body: "secret-in-a-trace" } }, /"server_error"/],
  ];
  for (const [name, switches, why] of answers) {
    it(`ends a login for good, whatever a retry could do: it ${name}`, async () => {
      const scene = await setScene(switches);
      await assert.rejects(authorize(scene, scene.open()), (error: unknown) => {
        assert.doesNotMatch(String(error), /secret-in-a-trace/);
        return refusing(why)(error);
      });
      assert.equal(scene.visited.length, 1);
    });
  }

  it("does not show what it says went wrong if it comes back in another's name", async () => {
    const scene = await setScene({ iss: "wrong", refusal: "visit_evil_example" });
    await assert.rejects(authorize(scene, scene.open()), (error: unknown) => {
      assert.doesNotMatch(String(error), /evil/);
      return true;
    });
    assert.deepEqual(scene.authority.at("/token"), []);
  });

  it("does not make the hub follow it elsewhere", async () => {
    const other = await Authority.open();
    opened.push(other);
    const place = `${other.url}/.well-known/oauth-authorization-server`;
    const scene = await setScene({ movedTo: place });
    await assert.rejects(authorize(scene, scene.open()), HubError);
    assert.deepEqual(other.noted, []);
  });

  it("does not get a registered client again whose secret has expired", async () => {
    const scene = await setScene({ secretLife: 3600, methods: ["client_secret_post"] });
    await authorize(scene, scene.open());
    scene.time.now += 3_590_000;
    scene.authority.revokeAll();
    await authorize(scene, scene.open());
    assert.equal(scene.authority.at("/register").length, 2);
  });

  it("keeps the client that it has registered when a login is cancelled", async () => {
    const scene = await setScene();
    for (let n = 0; n < 2; n++) {
      const abort = new AbortController();
      const visited = Promise.withResolvers<void>();
      const authorizer = scene.open(async () => visited.resolve());
      const login = authorizer.authorize(remote(scene.server), resolved(scene.server), CHALLENGE, {
        signal: abort.signal,
        onProgress: () => {},
      });
      await visited.promise;
      abort.abort(new HubError("cancelled", "Given up."));
      await assert.rejects(login, { code: "cancelled" });
    }
    assert.equal(await scene.server.try(await authorize(scene, scene.open())), 200);
    assert.equal(scene.authority.at("/register").length, 1);
  });

  it("does not make the hub come back as a client that it does not know any more", async () => {
    const scene = await setScene();
    await authorize(scene, scene.open());
    scene.authority.clients.clear();
    scene.authority.revokeAll();
    const late = scene.open(async (url) => {
      await browse(url);
      scene.clock.advanceTo(121_000);
    });
    await assert.rejects(authorize(scene, late), refusing(/within 120 s/));
    assert.equal(await scene.server.try(await authorize(scene, scene.open())), 200);
  });
});

describe("where an authorization server is looked for", LIMIT, () => {
  it("is what OpenID providers have, if there is nothing else", async () => {
    const scene = await setScene({ metadata: "openid" });
    assert.equal(await scene.server.try(await authorize(scene, scene.open())), 200);
  });

  it("is where the server says in its challenge", async () => {
    const scene = await setScene({}, { place: "/elsewhere" });
    const header = `Basic realm="x", Bearer realm="a, b", resource_metadata="${scene.server.url.origin}/elsewhere"`;
    const token = await authorize(scene, scene.open(), {}, { status: 401, header });
    assert.equal(await scene.server.try(token), 200);
  });

  it("is beside a server of old, which says nothing", async () => {
    const scene = await setScene({ metadata: "none" }, { place: "/nowhere", hosts: true });
    const token = await authorize(scene, scene.open());
    assert.equal(await scene.server.try(token), 200);
    assert.equal(scene.authority.at("/authorize")[0]?.parameters.has("resource"), false);
  });

  it("is the one that the manifest says, or none", async () => {
    const scene = await setScene();
    const more = { oauth: { issuer: "https://trusted.example" } };
    await assert.rejects(authorize(scene, scene.open(), more), refusing(/trusted\.example/));
  });

  it("is another one now: the client of the old one is not shown to it", async () => {
    const scene = await setScene();
    const authorizer = scene.open();
    await authorize(scene, authorizer);
    const other = await Authority.open();
    opened.push(other);
    scene.server.authority = other;
    const token = await authorize(scene, authorizer);
    assert.equal(await scene.server.try(token), 200);
    assert.equal(other.at("/register").length, 1);
  });
});

describe("scopes", LIMIT, () => {
  const asked = ({ authority }: Scene): (string | null)[] =>
    authority.at("/authorize").map(({ parameters }) => parameters.get("scope"));
  const wanting = (scope: string, status: 401 | 403 = 401): AuthChallenge => ({
    status,
    header: `Bearer error="insufficient_scope", scope="${scope}"`,
  });

  it("are those of the challenge, else those that the server has, else none", async () => {
    const scene = await setScene({}, { scopes: ["a", "b"] });
    await authorize(scene, scene.open(), {}, wanting("a"));
    assert.deepEqual(asked(scene), ["a"]);
    const unsaid = await setScene({}, { scopes: ["a", "b"] });
    await authorize(unsaid, unsaid.open());
    assert.deepEqual(asked(unsaid), ["a b"]);
    const none = await setScene();
    await authorize(none, none.open());
    assert.deepEqual(asked(none), [null]);
  });

  it("are those of the manifest if it says some, and of a person who logs in", async () => {
    const scene = await setScene({}, { scopes: ["a", "b"] });
    const authorizer = scene.open();
    const more = { oauth: { scopes: ["a"] } };
    await authorize(scene, authorizer, more, wanting("b"));
    await authorize(scene, authorizer, more, wanting("c", 403));
    const quiet = { signal: SIGNAL, onProgress: () => {} };
    await authorizer.login(remote(scene.server), resolved(scene.server), CHALLENGE, quiet, ["d"]);
    assert.deepEqual(asked(scene), ["a", "a c", "d"]);
  });

  it("go with offline_access only where that is offered", async () => {
    const scene = await setScene({ scopes: ["a", "offline_access"] }, { scopes: ["a"] });
    await authorize(scene, scene.open());
    assert.deepEqual(asked(scene), ["a offline_access"]);
  });

  it("that are missing are asked for beside those that there are", async () => {
    const scene = await setScene();
    const authorizer = scene.open();
    await authorize(scene, authorizer, {}, wanting("read"));
    await authorize(scene, authorizer, {}, wanting("write", 403));
    assert.deepEqual(asked(scene), ["read", "read write"]);
  });

  it("that were asked for already are not asked for again and again", async () => {
    const scene = await setScene();
    const authorizer = scene.open();
    await authorize(scene, authorizer, {}, wanting("read"));
    const again = authorize(scene, authorizer, {}, wanting("read", 403));
    await assert.rejects(again, refusing(/wants more.*\(read\).*toolmux auth login/));
    assert.equal(scene.visited.length, 1);
  });

  it("of a refresh token do not grow: it is not used for that", async () => {
    const scene = await setScene();
    const authorizer = scene.open();
    await authorize(scene, authorizer, {}, wanting("read"));
    const credentials = authorizer.credentialsFor(remote(scene.server), resolved(scene.server));
    await credentials.bear(SIGNAL);
    assert.equal(await credentials.renew(wanting("write", 403), SIGNAL), false);
    assert.equal(scene.authority.at("/token").length, 1);
  });
});

describe("a token", LIMIT, () => {
  const renew = (scene: Scene, authorizer: OAuthAuthorizer): Promise<boolean> =>
    authorizer
      .credentialsFor(remote(scene.server), resolved(scene.server))
      .renew(CHALLENGE, SIGNAL);
  const refreshes = ({ authority }: Scene): number =>
    authority.at("/token").filter(({ parameters }) => parameters.has("refresh_token")).length;

  it("is renewed before it expires, and not long before", async () => {
    const scene = await setScene({ tokenLife: 3600, rotates: true });
    const authorizer = scene.open();
    const first = await authorize(scene, authorizer);
    scene.time.now += 3_530_000;
    assert.equal(await borne(authorizer, scene.server), first);
    scene.time.now += 11_000;
    const second = await borne(authorizer, scene.server);
    assert.notEqual(second, first);
    assert.equal(await scene.server.try(second), 200);
    assert.equal(refreshes(scene), 1);
  });

  it("is renewed when it is refused, once for all who bore it", async () => {
    const scene = await setScene({ rotates: true });
    const authorizer = scene.open();
    await authorize(scene, authorizer);
    scene.authority.expire();
    const all = await Promise.all([1, 2, 3, 4, 5].map(() => renew(scene, authorizer)));
    assert.deepEqual(all, [true, true, true, true, true]);
    assert.equal(refreshes(scene), 1);
    assert.equal(await scene.server.try(await borne(authorizer, scene.server)), 200);
  });

  it("that another hub has renewed is taken from there", async () => {
    const scene = await setScene({ rotates: true });
    const [one, two] = [scene.open(), scene.open()];
    const first = await authorize(scene, one);
    assert.equal(await borne(two, scene.server), first);
    scene.authority.expire();
    assert.deepEqual(await Promise.all([renew(scene, one), renew(scene, two)]), [true, true]);
    assert.equal(refreshes(scene), 1);
    assert.equal(scene.authority.hasEnded, false);
    assert.equal(await borne(one, scene.server), await borne(two, scene.server));
  });

  it("is kept before it is used, with the refresh token that came with it", async () => {
    const scene = await setScene({ rotates: true });
    await authorize(scene, scene.open());
    for (let round = 0; round < 3; round++) {
      scene.authority.expire();
      const next = scene.open();
      assert.equal(await renew(scene, next), true);
      assert.equal(await scene.server.try(await borne(scene.open(), scene.server)), 200);
    }
    assert.equal(scene.authority.hasEnded, false);
  });

  it("is forgotten when its refresh token is good for nothing any more", async () => {
    const scene = await setScene();
    const authorizer = scene.open();
    await authorize(scene, authorizer);
    scene.authority.revokeAll();
    assert.equal(await renew(scene, authorizer), false);
    assert.equal(await borne(scene.open(), scene.server), undefined);
  });

  it("is kept while the authorization server fails", async () => {
    const scene = await setScene();
    const authorizer = scene.open();
    await authorize(scene, authorizer);
    scene.authority.expire();
    for (const [status, body] of [
      [503, "<html>busy"],
      [400, `{"error":"temporarily_unavailable"}`],
    ] as const) {
      scene.authority.switches.tokenError = { status, body };
      await assert.rejects(renew(scene, authorizer), refusing(/renewed/, "unreachable"));
    }
    delete scene.authority.switches.tokenError;
    assert.equal(await renew(scene, authorizer), true);
  });

  it("of a client that the manifest does not say any more is not exchanged", async () => {
    const scene = await setScene();
    const { clients } = scene.authority;
    for (const id of ["ours", "other"])
      clients.set(id, { secret: undefined, redirects: undefined, expires: undefined });
    const authorizer = scene.open();
    await authorize(scene, authorizer, { oauth: { clientId: "ours" } });
    const more = { oauth: { clientId: "other" } };
    const credentials = authorizer.credentialsFor(
      remote(scene.server, more),
      resolved(scene.server, more),
    );
    assert.equal(await credentials.renew(CHALLENGE, SIGNAL), false);
    assert.equal(refreshes(scene), 0);
  });

  it("is kept while the authorization server is not there", async () => {
    const scene = await setScene({ tokenLife: 3600 });
    const authorizer = scene.open();
    const first = await authorize(scene, authorizer);
    await scene.authority.close();
    opened.splice(opened.indexOf(scene.authority), 1);
    scene.time.now += 3_545_000;
    assert.equal(await borne(authorizer, scene.server), first);
    await assert.rejects(renew(scene, authorizer), refusing(/renewed/, "unreachable"));
    scene.time.now += 60_000;
    await assert.rejects(borne(authorizer, scene.server), refusing(/renewed/, "unreachable"));
    assert.deepEqual(await scene.open().stand(remote(scene.server), resolved(scene.server)), {
      kind: "expired",
      issuer: scene.authority.switches.issuer ?? scene.server.issuer,
      expires: scene.time.now - 5000,
      isRefreshable: true,
      scopes: [],
    });
  });

  it("is worth nothing after a logout, here and there", async () => {
    const scene = await setScene();
    const authorizer = scene.open();
    const token = await authorize(scene, authorizer);
    const spec = remote(scene.server);
    const ended = await authorizer.logout(spec, resolved(scene.server), SIGNAL);
    assert.deepEqual(ended, { was: true, isRevoked: true });
    assert.equal(await scene.server.try(token), 401);
    assert.equal(await borne(authorizer, scene.server), undefined);
    assert.deepEqual(await authorizer.stand(spec, resolved(scene.server)), { kind: "none" });
  });

  it("is not asked for more than three times by a server that takes none", async () => {
    const scene = await setScene({ isForgetful: true });
    const authorizer = scene.open();
    for (let round = 0; round < 3; round++) await authorize(scene, authorizer);
    await assert.rejects(authorize(scene, authorizer), refusing(/does not take tokens/));
    assert.equal(scene.visited.length, 3);
  });
});

describe("a client that the manifest says", LIMIT, () => {
  const client = { clientId: "ours", clientSecret: "a secret: with % and =" };

  for (const method of ["client_secret_basic", "client_secret_post"]) {
    it(`proves who it is by ${method}`, async () => {
      const scene = await setScene({ methods: [method] });
      const { clientSecret: secret } = client;
      scene.authority.clients.set("ours", { secret, redirects: undefined, expires: undefined });
      const more = { oauth: client };
      assert.equal(await scene.server.try(await authorize(scene, scene.open(), more)), 200);
      assert.deepEqual(scene.authority.at("/register"), []);
      const [exchange] = scene.authority.at("/token");
      const isBasic = method === "client_secret_basic";
      assert.equal(exchange?.headers.authorization?.startsWith("Basic ") === true, isBasic);
    });

    it(`gets tokens without anybody by ${method}, before the first request`, async () => {
      const scene = await setScene({ methods: [method] });
      const { clientSecret: secret } = client;
      scene.authority.clients.set("ours", { secret, redirects: undefined, expires: undefined });
      const more = {
        auth: "oauth" as const,
        oauth: { ...client, grant: "clientCredentials" as const },
      };
      const token = await borne(scene.open(), scene.server, more);
      assert.equal(await scene.server.try(token), 200);
      assert.deepEqual(scene.visited, []);
    });
  }

  it("gets tokens without anybody as often as they expire, and more of them when that is wanted", async () => {
    const scene = await setScene({ tokenLife: 60, methods: ["client_secret_post"] });
    const { clientSecret: secret } = client;
    scene.authority.clients.set("ours", { secret, redirects: undefined, expires: undefined });
    const more = {
      auth: "oauth" as const,
      oauth: { ...client, grant: "clientCredentials" as const },
    };
    const authorizer = scene.open();
    const tokens = new Set<string | undefined>();
    for (let round = 0; round < 6; round++) {
      tokens.add(await borne(authorizer, scene.server, more));
      scene.time.now += 58_000;
    }
    assert.equal(tokens.size, 6);
    const header = `Bearer error="insufficient_scope", scope="write"`;
    await authorize(scene, authorizer, more, { status: 403, header });
    const scopes = scene.authority.at("/token").map(({ parameters }) => parameters.get("scope"));
    assert.deepEqual(scopes.at(-1), "write");
  });

  for (const kind of ["rsa", "ec"] as const) {
    it(`gets tokens with a private key (${kind}), which stays where it is`, async () => {
      const scene = await setScene({ methods: ["private_key_jwt"] });
      scene.authority.clients.set("ours", {
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
      const authorizer = scene.open();
      const token = await authorize(scene, authorizer, { oauth });
      assert.equal(await scene.server.try(token), 200);
      const [request] = scene.authority.at("/token");
      const [head = ""] = request?.parameters.get("client_assertion")?.split(".") ?? [];
      const { alg } = JSON.parse(Buffer.from(head, "base64url").toString()) as { alg: string };
      assert.equal(alg, kind === "rsa" ? "RS256" : "ES256");
    });
  }

  it("is a document where the authorization server can read those", async () => {
    const id = "https://toolmux.example/client.json";
    const scene = await setScene({ documents: true });
    scene.authority.clients.set(id, {
      secret: undefined,
      redirects: undefined,
      expires: undefined,
    });
    const more = { oauth: { clientMetadataUrl: id } };
    assert.equal(await scene.server.try(await authorize(scene, scene.open(), more)), 200);
    assert.deepEqual(scene.authority.at("/register"), []);
    const plain = await setScene();
    await authorize(plain, plain.open(), more);
    assert.equal(plain.authority.at("/register").length, 1);
  });

  it("comes back to the port that the manifest says, or not at all", async () => {
    const scene = await setScene();
    const { port } = scene.server.url;
    const more = { oauth: { callbackPort: Number(port) } };
    await assert.rejects(
      authorize(scene, scene.open(), more),
      refusing(new RegExp(`port ${port}`)),
    );
  });
});

describe("what the manifest says of a server's credentials", LIMIT, () => {
  it("counts in that order: a header, a token of OAuth, a key file", async () => {
    const scene = await setScene();
    const authorizer = scene.open();
    const key = "a-key-of-a-file";
    assert.equal(await borne(authorizer, scene.server, { key }), key);
    const token = await authorize(scene, authorizer);
    assert.equal(await borne(authorizer, scene.server, { key }), token);
    const headers = { authorization: "Bearer mine" };
    assert.equal(await borne(authorizer, scene.server, { key, headers }), undefined);
  });

  it("leaves no place for a login if it is all there is to be", async () => {
    const scene = await setScene();
    const authorizer = scene.open();
    const headers = { Authorization: "Bearer mine" };
    await assert.rejects(
      authorize(scene, authorizer, { headers }),
      refusing(/Authorization header/),
    );
    await assert.rejects(authorize(scene, authorizer, { auth: "none" }), refusing(/auth = "none"/));
    await assert.rejects(authorize(scene, authorizer, { key: "k" }), refusing(/keyFile/));
    assert.deepEqual(scene.visited, []);
  });

  it("asks for a login before the first request if it says oauth", async () => {
    const scene = await setScene();
    const more = { auth: "oauth" as const };
    await assert.rejects(borne(scene.open(), scene.server, more), refusing(/toolmux auth login/));
    assert.equal(await scene.server.try(await authorize(scene, scene.open(), more)), 200);
  });

  it("is all that is borne while secrets cannot be read, unless the server wants more", async () => {
    const scene = await setScene();
    const broken = new HubError("storeBroken", "The keychain is locked.");
    scene.store.get = () => Promise.reject(broken);
    const authorizer = scene.open();
    assert.equal(await borne(authorizer, scene.server), undefined);
    assert.equal(await borne(authorizer, scene.server, { key: "a-key" }), "a-key");
    await assert.rejects(authorize(scene, authorizer), (error) => error === broken);
    const more = { auth: "oauth" as const };
    await assert.rejects(borne(authorizer, scene.server, more), (error) => error === broken);
    assert.deepEqual(scene.visited, []);
  });

  it("is asked for if the server takes no tokens at all", async () => {
    const scene = await setScene();
    const challenge: AuthChallenge = { status: 401, header: `Basic realm="x"` };
    const run = authorize(scene, scene.open(), {}, challenge);
    await assert.rejects(run, refusing(/headers\.Authorization/));
  });
});
