/** Operators' pages of the deployment as a whole. */
export const overviewRoutes = [] as const;
