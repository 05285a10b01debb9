import express = require('express');
import { leapgate } from 'leapgate/express';

const app = express();
app.use(leapgate({ limit: 100, windowMs: 60_000, key: (request) => request.get('x-api-key') ?? '' }));
// @ts-expect-error an option that is not there
leapgate({ limit: 1, windowMs: 1000, keyGenerator: () => 'a' });
