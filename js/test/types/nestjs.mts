import { ThrottlerModule, type ThrottlerStorage } from '@nestjs/throttler';
import { leapgate, type Storage } from 'leapgate/nestjs';

const storage: Storage & ThrottlerStorage = leapgate();
ThrottlerModule.forRoot({ throttlers: [{ limit: () => 100, ttl: 60_000 }], storage });
leapgate({ window: 'weighted', maxKeys: 1000, onRefused: ({ key, result, suppressed }) => console.log(key, result.rule, suppressed) });
// @ts-expect-error the throttlers say it
leapgate({ limit: 100 });
leapgate({ window: undefined, onRefused: undefined });
