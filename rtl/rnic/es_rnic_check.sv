// The checks of a segment that stand in docs/rnic.md, 9, in their order, but for the look-up of its memory: what is to be done with it.
//
// Three clocks: what is known of the QP is read, it is compared with the segment, and what is said of it holds from the third on, as long as the segment
// and its QP stay.
module es_rnic_check #(
    parameter int READS = 4  // Reads of a QP under way
) (
    input wire clk,

    input  wire es_rnic_pkg::fields_t         f,
    input  wire                        [15:0] length,
    input  wire                        [15:0] peer,
    input  wire es_rnic_pkg::context_t        qp,
    input  wire                        [ 3:0] state,
    input  wire es_rnic_pkg::known_t          known,
    output es_rnic_pkg::verdict_t             verdict,
    output logic                       [15:0] cause,    // of a fault: layer, type, code
    output logic                       [ 3:0] why       // it is dropped
);
  // What is known, a clock later.
  es_rnic_pkg::context_t q;
  es_rnic_pkg::known_t k;
  logic [3:0] s;
  logic [15:0] data_bytes;

  always_ff @(posedge clk) begin
    q <= qp;
    k <= known;
    s <= state;
    data_bytes <= f.data_bytes;
  end

  // What the segment says beside it, another clock later.
  logic [31:0] queue;
  logic wrong_model, invalidates, is_send, is_malformed, is_nobodys, is_truncated, takes, is_its_peer, is_sync, is_absent, is_answer;
  logic
      is_last_serial,
      is_next,
      breaks_off,
      is_next_read,
      is_next_send,
      is_at_offset,
      is_whole_read,
      is_full,
      is_empty,
      asks_nothing,
      is_too_long;
  logic [15:0] form;

  always_comb begin
    case (f.opcode)
      es_rnic_pkg::ReadRequest: queue = 32'd1;
      es_rnic_pkg::Terminate: queue = 32'd2;
      es_rnic_pkg::Synchronise, es_rnic_pkg::Acknowledge: queue = 32'd4;
      default: queue = 32'd0;
    endcase
    wrong_model = f.untagged == (f.opcode == es_rnic_pkg::Write || f.opcode == es_rnic_pkg::ReadResponse) || (f.untagged && f.qn != queue);
    invalidates = f.opcode == es_rnic_pkg::SendInvalidate || f.opcode == es_rnic_pkg::SendSolicitedInvalidate;
    is_send = f.opcode == es_rnic_pkg::Send || f.opcode == es_rnic_pkg::SendSolicited || invalidates;
  end

  always_ff @(posedge clk) begin
    is_malformed <= 1'b1;
    if (f.dv != 2'd1) form <= f.untagged ? 16'h1206 : 16'h1104;
    else if (f.untagged && f.qn > 32'd4) form <= 16'h1201;
    else if (f.rv != 2'd1) form <= 16'h0205;
    else if (wrong_model) form <= 16'h0206;
    else begin
      is_malformed <= 1'b0;
      form <= 16'h0000;
    end
    is_truncated <= length < f.header_bytes;
    is_nobodys <= f.number == '0;
    takes <= (s == es_rnic_pkg::Rtr || s == es_rnic_pkg::Rts || s == es_rnic_pkg::Sqd) && f.number == q.number;
    is_its_peer <= peer == q.peer;
    is_sync <= f.opcode == es_rnic_pkg::Synchronise && f.untagged;
    is_absent <= f.opcode == es_rnic_pkg::Acknowledge && f.stag == 32'd2 && f.mo[31:16] == '0;
    is_answer <= k.sink_any && f.stag == k.sink_stag && f.to == {32'b0, k.sink_place} &&
        32'(data_bytes) <= k.sink_left && f.last == (32'(data_bytes) == k.sink_left);
    // A QP sends one Synchronise in its life.
    is_last_serial <= f.msn == q.first_sent + 1'b1 && s != es_rnic_pkg::Rtr && f.mo[31:16] == '0;
    is_next <= f.msn == k.expected && !k.writing;
    // Segments of a message follow each other (7).
    breaks_off <= (k.writing && f.opcode != es_rnic_pkg::Write) || (k.offset != '0 && !is_send);
    is_next_read <= f.msn == k.msn1;
    is_next_send <= f.msn == k.msn0;
    is_at_offset <= f.mo == k.offset;
    is_whole_read <= f.mo == '0 && f.last && data_bytes == 16'd28;
    is_full <= k.accepted >= q.ird || k.accepted >= 8'(READS);
    is_empty <= data_bytes == '0;
    asks_nothing <= f.read_length == '0;
    is_too_long <= k.offset + 32'(data_bytes) > k.room;
  end

  always_comb begin
    cause = form;
    verdict = es_rnic_pkg::Forget;
    why = '0;
    if (is_truncated) why = es_rnic_pkg::Truncated;
    else if (is_malformed) begin
      why = es_rnic_pkg::Malformed;
      if (takes && is_its_peer) verdict = es_rnic_pkg::Fault;
    end else if (is_nobodys) begin
      if (is_absent) verdict = es_rnic_pkg::Absent;
      else why = es_rnic_pkg::Malformed;
    end else if (!takes || !is_its_peer) begin
      why = takes ? es_rnic_pkg::Foreign : es_rnic_pkg::NoQp;
      if (is_sync) verdict = es_rnic_pkg::Answer;
    end else begin
      case (f.opcode)
        es_rnic_pkg::Acknowledge:
        if (f.stag < 32'd2 || (f.stag == 32'd2 && is_last_serial)) verdict = es_rnic_pkg::Taken;
        else why = es_rnic_pkg::Acknowledges;
        es_rnic_pkg::Terminate: verdict = es_rnic_pkg::Taken;
        es_rnic_pkg::Synchronise: begin
          if (f.stag != '0) begin
            // Restart.
            if (is_next) verdict = es_rnic_pkg::Taken;
            else begin
              why = es_rnic_pkg::Sequence;
              cause = 16'h0207;
              verdict = k.begun || k.refused ? es_rnic_pkg::Fault : es_rnic_pkg::Answer;
            end
          end else if (k.begun) verdict = es_rnic_pkg::Taken;
          else if (!k.refused) verdict = es_rnic_pkg::Answer;
        end
        es_rnic_pkg::ReadResponse: begin
          if (is_answer) verdict = is_empty ? es_rnic_pkg::Taken : es_rnic_pkg::Put;
          else begin
            why = es_rnic_pkg::Answers;
            verdict = es_rnic_pkg::Ours;
          end
        end
        default:
        if (!k.begun) why = es_rnic_pkg::NotReady;
        else begin
          verdict = es_rnic_pkg::Fault;
          if (breaks_off) begin
            why   = es_rnic_pkg::Sequence;
            cause = 16'h0207;
          end else
            case (f.opcode)
              es_rnic_pkg::Write:
              if (!q.rights[0]) begin
                why   = es_rnic_pkg::Denied;
                cause = 16'h0102;
              end else verdict = is_empty ? es_rnic_pkg::Taken : es_rnic_pkg::Put;
              es_rnic_pkg::ReadRequest:
              if (!is_next_read) begin
                why   = es_rnic_pkg::Sequence;
                cause = 16'h1203;
              end else if (!is_whole_read) begin
                why   = es_rnic_pkg::Sequence;
                cause = 16'h1204;
              end else if (is_full) begin
                why   = es_rnic_pkg::Irrq;
                cause = 16'h1202;
              end else if (!q.rights[1]) begin
                why   = es_rnic_pkg::Denied;
                cause = 16'h0102;
              end else verdict = asks_nothing ? es_rnic_pkg::Taken : es_rnic_pkg::Put;
              es_rnic_pkg::Send, es_rnic_pkg::SendSolicited, es_rnic_pkg::SendInvalidate, es_rnic_pkg::SendSolicitedInvalidate:
              if (!is_next_send) begin
                why   = es_rnic_pkg::Sequence;
                cause = 16'h1203;
              end else if (!is_at_offset) begin
                why   = es_rnic_pkg::Sequence;
                cause = 16'h1204;
              end else if (!k.has_wqe && k.may_fetch) verdict = es_rnic_pkg::Fetching;
              else if (!k.has_wqe) begin
                why = es_rnic_pkg::NotReady;
                verdict = es_rnic_pkg::Answer;
              end else if (is_too_long) begin
                why   = es_rnic_pkg::TooLong;
                cause = 16'h1205;
              end else if (invalidates) begin
                // No window is ever bound: FEATURES has no WINDOWS.
                why   = es_rnic_pkg::Denied;
                cause = 16'h0209;
              end else verdict = is_empty ? es_rnic_pkg::Taken : es_rnic_pkg::Put;
              default: begin
                why   = es_rnic_pkg::Malformed;
                cause = 16'h0206;
              end
            endcase
        end
      endcase
    end
  end
endmodule
