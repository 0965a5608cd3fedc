import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { isSameIssuer } from "../../src/auth/discovery.ts";
import { HubError } from "../../src/base/errors.ts";
import type { AuthorizationServerSettings } from "../fixtures/authorization-server.ts";
import { isHubError, NEVER_ABORTED, TEST_OPTIONS } from "../fixtures/authorization-setup.ts";
import type { ProtectedServerOptions } from "../fixtures/protected-server.ts";
import { setUp } from "../harness/login.ts";

const json = (status: number, body: object) => ({ status, body: JSON.stringify(body) });
const CLIENT = {
  auth: "oauth",
  oauth: { clientId: "ours", clientSecret: "s3cret/+value", grant: "clientCredentials" },
} as const;

describe("What an authorization server says when it refuses", TEST_OPTIONS, () => {
  const WORDS = 'Only "trusted" clients\u202e may\nregister';
  const QUOTED = /"Only \\"trusted\\" clients\\u\{202e\} may register"/;
  const refusals: readonly (readonly [string, AuthorizationServerSettings, RegExp])[] = [
    [
      "a registration with 403",
      { registrationError: json(403, { error_description: WORDS }) },
      /refused to register.*HTTP 403/,
    ],
    [
      "a registration with a code",
      { registrationError: json(400, { error: "invalid_redirect_uri", error_description: WORDS }) },
      /"invalid_redirect_uri"/,
    ],
    [
      "a registration with 500",
      { registrationError: json(500, { message: WORDS }) },
      /failed to register.*HTTP 500.*try again later/,
    ],
    [
      "a registration in a text",
      { registrationError: { status: 401, body: WORDS } },
      /refused to register.*HTTP 401/,
    ],
    [
      "a registration in HTML",
      {
        registrationError: {
          status: 503,
          body: `<html><head><title>x</title></head><p>${WORDS}</p>`,
        },
      },
      /HTTP 503/,
    ],
    [
      "a registration with an error in HTTP 200",
      { registrationError: json(200, { error: "access_denied", error_description: WORDS }) },
      /"access_denied"/,
    ],
    ["a registration", { registrationError: json(404, { detail: WORDS }) }, /does not register/],
    [
      "a token",
      { tokenError: json(400, { error: "invalid_grant", error_description: WORDS }) },
      /HTTP 400 "invalid_grant"/,
    ],
    ["a token with 429", { tokenError: json(429, { error: { message: WORDS } }) }, /HTTP 429/],
    [
      "the access",
      { authorizationError: "access_denied", authorizationErrorDescription: WORDS },
      /access was denied/,
    ],
    [
      "a login",
      { authorizationError: "server_error", authorizationErrorDescription: WORDS },
      /answered "server_error"/,
    ],
  ];
  for (const [what, settings, pattern] of refusals) {
    it(`is quoted: it refuses ${what}`, async () => {
      const { logIn } = await setUp(settings);
      await assert.rejects(logIn(), (error: unknown) => {
        assert.match(String(error), QUOTED);
        return isHubError(pattern)(error);
      });
    });
  }

  it("is cut after 500 characters", async () => {
    const { logIn } = await setUp({
      tokenError: json(400, { error_description: "x".repeat(9000) }),
    });
    await assert.rejects(logIn(), isHubError(/"x{499}…"/));
  });

  it("has no secret of the request", async () => {
    const { tokenOf, knowClient } = await setUp({
      methods: ["client_secret_basic"],
      tokenError: json(401, {
        error: "invalid_client",
        error_description: "the secret s3cret/+value (s3cret%2F%2Bvalue) is wrong",
      }),
    });
    knowClient("ours", "s3cret/+value");
    await assert.rejects(tokenOf(undefined, CLIENT), (error: unknown) => {
      assert.doesNotMatch(String(error), /s3cret/);
      return isHubError(/"invalid_client": "the secret \[redacted\] \(\[redacted\]\) is wrong"/)(
        error,
      );
    });
  });

  it("stands in the error of a later call when a token could not be renewed", async () => {
    const settings: AuthorizationServerSettings = { tokenLifetime: 60 };
    const { logIn, tokenOf, hub, time } = await setUp(settings);
    await logIn(hub);
    time.now += 61_000;
    settings.tokenError = json(503, {
      error: "temporarily_unavailable",
      error_description: "at night",
    });
    await assert.rejects(tokenOf(hub), isHubError(/cannot do that now.*"at night"/, "unreachable"));
    settings.tokenError = json(400, {
      error: "invalid_grant",
      error_description: "revoked by Ann",
    });
    const more = { auth: "oauth" } as const;
    assert.equal(await tokenOf(hub), undefined);
    await assert.rejects(
      tokenOf(hub, more),
      isHubError(/nobody has logged in yet.*"revoked by Ann"/),
    );
  });

  it("is the reason of a token that was not revoked", async () => {
    const settings = {
      revocationError: json(400, { error: "unsupported_token_type", error_description: "no" }),
    };
    const { logIn, hub, spec, target } = await setUp(settings);
    await logIn(hub);
    const ended = await hub.logout(spec, target, NEVER_ABORTED);
    assert.equal(ended?.kind, "failed");
    assert.match("reason" in ended ? ended.reason : "", /HTTP 400 "unsupported_token_type": "no"/);
  });
});

describe("An invalid answer of an authorization server", TEST_OPTIONS, () => {
  const invalid: readonly (readonly [string, AuthorizationServerSettings, RegExp])[] = [
    ["metadata", { metadataMembers: { token_endpoint: null } }, /invalid answer: token_endpoint/],
    ["metadata", { metadataMembers: { registration_endpoint: 7 } }, /registration_endpoint/],
    ["metadata", { metadataMembers: { scopes_supported: "a b" } }, /scopes_supported/],
    ["a registration", { registrationMembers: { client_id: 7 } }, /invalid answer: client_id/],
    ["a token", { tokenMembers: { access_token: null } }, /invalid answer: access_token/],
    ["a token", { tokenError: { status: 200, body: "access_token=x" } }, /it is not JSON/],
  ];
  for (const [what, settings, pattern] of invalid) {
    it(`is refused with the name of the member: ${what}, ${pattern.source}`, async () => {
      const { logIn } = await setUp(settings);
      await assert.rejects(logIn(), isHubError(pattern));
    });
  }
});

describe("A member that is null", TEST_OPTIONS, () => {
  const METADATA = [
    "scopes_supported",
    "response_modes_supported",
    "grant_types_supported",
    "token_endpoint_auth_methods_supported",
    "token_endpoint_auth_signing_alg_values_supported",
    "service_documentation",
    "revocation_endpoint",
    "introspection_endpoint",
    "client_id_metadata_document_supported",
    "authorization_response_iss_parameter_supported",
    "op_policy_uri",
    "userinfo_endpoint",
    "claims_parameter_supported",
  ];
  const REGISTRATION = [
    "redirect_uris",
    "client_secret",
    "client_secret_expires_at",
    "client_id_issued_at",
    "token_endpoint_auth_method",
    "grant_types",
    "client_uri",
    "logo_uri",
    "contacts",
    "jwks_uri",
    "software_id",
    "scope",
  ];
  const TOKEN = ["refresh_token", "expires_in", "scope", "id_token"];
  const nulls = (names: readonly string[]): Record<string, null> =>
    Object.fromEntries(names.map((name) => [name, null]));

  for (const metadata of ["oauth", "openid"] as const) {
    it(`is absent in metadata (${metadata}), registrations and tokens`, async () => {
      const { assertLogsIn } = await setUp({
        metadata,
        metadataMembers: nulls(METADATA),
        registrationMembers: nulls(REGISTRATION),
        tokenMembers: nulls(TOKEN),
      });
      await assertLogsIn();
    });
  }

  it("is absent at the registration endpoint and among the scopes of a token", async () => {
    const { logIn } = await setUp({ metadataMembers: { registration_endpoint: null } });
    await assert.rejects(logIn(), isHubError(/does not register clients/));
    const other = await setUp({ scopes: ["read"], tokenMembers: { scope: null } });
    await other.logIn(other.hub);
    const status = await other.hub.getStatus(other.spec, other.target);
    assert.ok("scopes" in status);
    assert.deepEqual(status.scopes, []);
  });
});

describe("The issuer in the metadata", TEST_OPTIONS, () => {
  /** The issuer that the resource metadata names, and the issuer of the metadata, after the origin. */
  const EQUAL: readonly (readonly [string, string])[] = [
    ["", ""],
    ["/", ""],
    ["", "/"],
    ["/", "/"],
  ];
  const DIFFERENT: readonly string[] = ["//", "/?", "/#", "/x", "?x", "/."];

  const setUpIssuers = async (named: string, issuer: string) => {
    const settings: AuthorizationServerSettings = { iss: "absent" };
    const issuers: string[] = [];
    const options: ProtectedServerOptions = { issuers };
    const setup = await setUp(settings, options);
    const { url } = setup.authorizationServer;
    issuers.push(url + named);
    settings.issuer = url + issuer;
    return { ...setup, url };
  };

  for (const [named, issuer] of EQUAL) {
    it(`is that which the server names: "${named}" and "${issuer}"`, async () => {
      const { assertLogsIn, url } = await setUpIssuers(named, issuer);
      await assertLogsIn();
      for (const configured of [url, `${url}/`])
        await assertLogsIn(undefined, { oauth: { issuer: configured } });
    });
  }

  for (const issuer of DIFFERENT) {
    it(`is another than the one which the server names, and both are told: "${issuer}"`, async () => {
      const { logIn, url } = await setUpIssuers("", issuer);
      await assert.rejects(logIn(), (error: unknown) => {
        assert.ok(error instanceof HubError);
        assert.ok(
          error.message.includes(`"${url}"`) && error.message.includes(`"${url}${issuer}"`),
        );
        return isHubError(/another authorization server/)(error);
      });
    });
  }

  it("differs in everything but an empty path", () => {
    const url = "https://auth.example";
    for (const [one, other] of [
      [`${url}/tenant`, `${url}/tenant/`],
      [url, "https://AUTH.example"],
      [url, `${url}:443`],
      [url, "http://auth.example"],
      [`${url}?a`, `${url}/?a`],
      [`${url}//`, `${url}/`],
      ["https:", "https:/"],
    ] as const) {
      assert.equal(isSameIssuer(one, other), false, `${one} ${other}`);
      assert.equal(isSameIssuer(other, one), false, `${other} ${one}`);
    }
  });

  it("and oauth.issuer are told when the server names another", async () => {
    const { logIn, url } = await setUpIssuers("", "");
    const run = logIn(undefined, { oauth: { issuer: `${url}/x` } });
    await assert.rejects(run, isHubError(/accepts tokens of "http.*", but oauth\.issuer.*\/x"/));
  });

  it("is compared as a text with the parameter iss of a login", async () => {
    const settings: AuthorizationServerSettings = {};
    const { logIn, authorizationServer } = await setUp(settings);
    settings.issuer = `${authorizationServer.url}/`;
    const { url } = authorizationServer;
    await assert.rejects(logIn(), (error: unknown) => {
      assert.ok(String(error).includes(`"${url}"`) && String(error).includes(`"${url}/"`));
      return isHubError(/another authorization server/)(error);
    });
  });
});
