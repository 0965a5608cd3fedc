import { HubError } from "../base/errors.ts";

/** The files of the page, which scripts/page.ts builds from the sources in `page/`. */
export interface PageFiles {
  readonly html: string;
  readonly script: string;
  /** The module that `script` imports when it first draws charts. */
  readonly charts: string;
  readonly style: string;
}

/** Loads the page. @throws {HubError} notSupported if toolmux runs from its sources and the page was not built */
export async function loadPage(): Promise<PageFiles> {
  try {
    return (await import("../../dist/dashboard/page.mjs")).PAGE;
  } catch (cause) {
    const text = "The page of the dashboard is not built.";
    throw new HubError("notSupported", text, { hint: "Build it: npm run page", cause });
  }
}
