/** The module that scripts/page.ts writes; PAGE is a `PageFiles`. */
declare module "*/dist/dashboard/page.mjs" {
  export const PAGE: {
    readonly html: string;
    readonly script: string;
    readonly charts: string;
    readonly style: string;
  };
}
