/** Operators' pages of what is served next and how good it is. */
export const qualityRoutes = [] as const;
