// Positions in memory, and numbers of things: js/src/layout.rs documents them, and sources.test.mjs compares the two files.

// Values in the buffer: the byte before each.
export const TAG_NULL = 0;
export const TAG_FALSE = 1;
export const TAG_TRUE = 2;
export const TAG_NUMBER = 3;
export const TAG_TEXT = 4;
export const TAG_ARRAY = 5;
export const TAG_OBJECT = 6;

// Results of a limiter, in doubles.
export const VERDICT_REFUSING = 0;
export const VERDICT_RETRY_AFTER = 1;
export const VERDICT_KEY_LOW = 2;
export const VERDICT_KEY_HIGH = 3;
export const VERDICT_LEN = 4;
export const VERDICT_HOLD = 0;
export const VERDICT_SEQUENCE = 1;
export const LOOK = 0;
export const CHARGE = 1;
export const HOLD = 2;
export const LIMIT_COUNT = 0;
export const LIMIT_REMAINING = 1;
export const LIMIT_RESET = 2;
export const LIMIT_STEADY = 3;
export const LIMIT_LEN = 4;

// Shared limiters.
export const TAKEN_PASS = 0;
export const TAKEN_REFUSE = 1;
export const TAKEN_WAIT = 2;
export const TAKEN_MESSAGE = 4;
export const TAKEN_VALUE = 0;
export const MESSAGE_TOKEN = 1;
export const MESSAGE_KEY = 2;
export const MESSAGE_TEXT = 3;
export const CHANGE_NONE = 0;
export const CHANGE_DOWN = 1;
export const CHANGE_UP = 2;
export const CHANGE_ERROR = 4;
export const WHEN_DOWN = ['local', 'refuse', 'pass'];
export const FIGURES = ['permits', 'asks', 'granted', 'lost', 'downMs', 'isDown'];

// Results of an engine, in doubles.
export const DECISION_POLICIES = 0;
export const DECISION_RULES = 1;
export const DECISION_REFUSING = 2;
export const DECISION_COUNT = 3;
export const DECISION_RETRY_AFTER = 4;
export const DECISION_WAIT = 5;
export const DECISION_LEN = 6;
export const POLICY_RULE = 0;
export const POLICY_COUNT = 1;
export const POLICY_REMAINING = 2;
export const POLICY_RESET = 3;
export const POLICY_LEN = 4;
export const RULE_WINDOW = 0;
export const RULE_STATUS = 1;
export const RULE_LEN = 2;
export const COSTS = 6;

// Engines.
export const FLOW_RULE = [
  'count',
  'intervalMs',
  'sampleCount',
  'window',
  'controlBehavior',
  'warmUpPeriodSec',
  'coldFactor',
  'maxQueueingTimeMs',
  'maxKeys',
  'burst',
  'parts',
];
export const PRIORITIZED = 1;
export const INBOUND = 2;
export const CAN_WAIT = 4;
export const ENDS = 8;
export const KEYED = 16;
export const LOOKS = 32;
export const EXEMPT = 64;
export const COSTED = 128;
export const HAS_RULES = 1;
export const IS_OPEN = 2;
export const HOLDS = 4;
export const REFUSED = -1;
export const ENDED = -2;
export const NONE = -1;
export const EXIT = 0;
export const EXIT_WITH_ERROR = 1;
export const CANCEL = 2;
export const DROP = 3;
export const UNANSWERED = 4;

// Statistics: the columns of rows.
export const WINDOW = ['intervalMs', 'sampleCount'];
export const BUCKET = ['start', 'pass', 'block', 'exception', 'success', 'rt', 'occupiedPass', 'minRt', 'shortestRt', 'maxRt', 'maxConcurrency'];
export const DETAIL = ['timestamp', 'pass', 'block', 'success', 'exception', 'rt', 'occupiedPass', 'concurrency'];
export const COUNTERS = ['passed', 'waited', 'blocked', 'shadowBlocked', 'shared', 'defaulted', 'debt', 'inFlight', 'part'];
export const HOT_KEY = ['amount', 'isNamed'];

// Statistics: choices.
export const VALUE = [
  'passQps',
  'blockQps',
  'totalQps',
  'successQps',
  'exceptionQps',
  'occupiedPassQps',
  'maxSuccessQps',
  'avgRt',
  'minRt',
  'previousPassQps',
  'previousBlockQps',
  'totalRequest',
  'totalPass',
  'totalSuccess',
  'totalException',
  'blockRequest',
  'curThreadNum',
  'waiting',
];
export const RECORD_PASS_REQUEST = 0;
export const RECORD_BLOCK_QPS = 1;
export const RECORD_EXCEPTION_QPS = 2;
export const RECORD_OCCUPIED_PASS = 3;
export const RECORD_BEGIN = 4;
export const RECORD_RT_AND_SUCCESS = 5;
export const RECORD_COMPLETE = 6;
export const RECORD_COMPLETE_FAILED = 7;
export const RECORD_WAITING_REQUEST = 8;
export const RECORD_THREAD_MORE = 9;
export const RECORD_THREAD_LESS = 10;
export const EXTREME_MAX_SUCCESS = 0;
export const EXTREME_MIN_RT = 1;
export const EXTREME_SHORTEST_RT = 2;
export const EXTREME_MAX_RT = 3;
export const EXTREME_MAX_CONCURRENCY = 4;
export const RING_CURRENT = 0;
export const RING_PREVIOUS = 1;
export const RING_VALID_HEAD = 2;
export const RING_OF = 3;
export const NODE_ROOT = 0;
export const NODE_INBOUND = 1;
export const NODE_ENTRANCE = 2;
export const NODE_DEFAULT = 3;
export const NODE_CLUSTER = 4;
export const NODE_ORIGIN = 5;
export const BELOW_RESOURCES = 0;
export const BELOW_ENTRANCES = 1;
export const BELOW_ORIGINS = 2;

// The command line: what is wrong with a file, and what the program says.
export const FAULT_DOCUMENT = 0;
export const FAULT_LOG = 1;
export const FAULT_PAGE = 2;
export const FAULT_BROKEN_OFF = 3;
export const SAID_OUT = 0;
export const SAID_ERR = 1;
export const SAID_PAGE = 2;
