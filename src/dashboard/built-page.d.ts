/** The module that scripts/page.ts writes; PAGE is a `PageFiles`. */
declare module "*/dist/dashboard/page.mjs" {
  export const PAGE: Readonly<Record<string, string>>;
}
